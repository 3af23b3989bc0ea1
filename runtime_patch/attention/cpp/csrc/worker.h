// A thread's work: tasks, block by block, with the running softmax of their rows.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "call.h"
#include "tile.h"

namespace hogwild {

// Memory of one thread, kept for its next call.
class Scratch {
 public:
  void reserve(size_t bytes) {
    if (bytes <= size_) return;
    size_ = bytes;
    data_.reset(static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    if (!data_) throw std::bad_alloc();
  }

  template <class E>
  E* at(size_t byte) {
    return reinterpret_cast<E*>(data_.get() + byte);
  }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

// Computes tasks for some of the KV heads.
template <class Dot, class KV>
class Worker {
 public:
  explicit Worker(const Call& call)
      : call_(call), group_(call.heads / call.kv_heads), lanes_(lanes<Dot>(call.dim)),
        width_(value_lanes(call.value_dim)), columns_((call.value_dim + W - 1) / W),
        factor_(float(call.scale * 1.4426950408889634)) {
    const int64_t vectors = std::max(Schedule::kVectors, group_);
    size_t bytes = 0;
    auto take = [&](size_t size) { return std::exchange(bytes, bytes + (size + 63) / 64 * 64); };
    const size_t keys = take(4 * kBlock * lanes_), values = take(4 * kBlock * width_);
    const size_t scores = take(4 * kBlock * vectors), weights = take(4 * kBlock * vectors);
    const size_t keep = take(4 * vectors);
    const size_t queries = take(4 * lanes_ * vectors * call.kv_heads);
    const size_t out = take(4 * width_ * vectors * call.kv_heads);
    const size_t running = take(sizeof(Running) * vectors * call.kv_heads);
    static thread_local Scratch scratch;
    scratch.reserve(bytes);
    keys_ = scratch.at<uint32_t>(keys);
    values_ = scratch.at<uint32_t>(values);
    scores_ = scratch.at<float>(scores);
    weights_ = scratch.at<uint32_t>(weights);
    keep_ = scratch.at<float>(keep);
    queries_ = scratch.at<uint32_t>(queries);
    out_ = scratch.at<float>(out);
    running_ = scratch.at<Running>(running);
  }

  void run(const Task& task, int64_t first_head, int64_t last_head) {
    vectors_ = task.reads * group_;
    const int64_t heads = last_head - first_head;
    std::fill_n(out_, heads * vectors_ * width_, 0.0f);
    // Lower than any score, and finite, so that a row that sees no key yet has weights 0.
    std::fill_n(running_, heads * vectors_, Running{Floats{}, -1e30f});
    for (int64_t p = task.first_piece; p < task.last_piece; ++p) {
      const Piece& piece = call_.schedule->pieces[p];
      for (int64_t head = first_head; head < last_head; ++head) {
        load_queries(piece, head, queries_ + (head - first_head) * vectors_ * lanes_);
      }
      for (int64_t at = 0; at < piece.keys; at += kBlock) {
        for (int64_t head = first_head; head < last_head; ++head) {
          attend(piece, at, head, head - first_head);
        }
      }
    }
    for (int64_t head = first_head; head < last_head; ++head) {
      store_rows(task, head, head - first_head);
    }
  }

 private:
  // The rows' queries for one KV head, turned to where this segment sees them.
  void load_queries(const Piece& piece, int64_t kv_head, uint32_t* to) {
    const int64_t half = call_.rotary / 2, floats = lanes_ * Dot::step;
    alignas(64) float stored[kMaxDim], turned[kMaxDim];
    std::fill(turned + call_.dim, turned + floats, 0.0f);
    for (int64_t i = 0; i < vectors_; ++i, to += lanes_) {
      const int64_t read = piece.read + i / group_, head = kv_head * group_ + i % group_;
      const int64_t angle = call_.turn[read] * half;
      call_.read_query(call_.plan->read_row[read], head, stored);
      turn(stored, call_.cos + angle, call_.sin + angle, half, turned);
      std::copy(stored + call_.rotary, stored + call_.dim, turned + call_.rotary);
      for (int64_t at = 0; at < floats; at += 2 * W) {
        const float* some = turned + at;
        Dot::store_lanes(to + at / Dot::step, load<Floats>(some), load<Floats>(some + W));
      }
    }
  }

  void turn(const float* __restrict x, const float* __restrict cos, const float* __restrict sin,
            int64_t half, float* __restrict to) const {
    if (call_.neox) {
      for (int64_t d = 0; d < half; ++d) {
        to[d] = x[d] * cos[d] - x[d + half] * sin[d];
        to[d + half] = x[d + half] * cos[d] + x[d] * sin[d];
      }
    } else {
      for (int64_t d = 0; d < half; ++d) {
        to[2 * d] = x[2 * d] * cos[d] - x[2 * d + 1] * sin[d];
        to[2 * d + 1] = x[2 * d + 1] * cos[d] + x[2 * d] * sin[d];
      }
    }
  }

  // One block of keys of one head, for all query vectors of the task.
  void attend(const Piece& piece, int64_t at, int64_t kv_head, int64_t index) {
    const Plan& plan = *call_.plan;
    const int64_t first = piece.slot + at, end = plan.segment_start[plan.num_segments];
    const int count = std::min<int64_t>(kBlock, piece.keys - at);
    const int next = std::clamp<int64_t>(end - first - kBlock, 0, kBlock);
    const int64_t* slots = plan.slots + first;
    const KV* row[kBlock];
    const Rows<KV> keys = rows(call_.k, kv_head, call_.dim);
    keys.find(slots, count, row);
    const char* next_row[kBlock];
    Ahead ahead = keys.ahead(slots + kBlock, next, next_row);
    // A few vectors are done before memory is: it should begin at once.
    const bool at_once = vectors_ <= kTileRows;
    if (at_once) ahead.rest();
    pack_keys<Dot>(row, count, keys.dim, keys_);
    const uint32_t* queries = queries_ + index * vectors_ * lanes_;
    multiply<Dot>({queries, keys_, scores_, lanes_, kBlock, kBlock, lanes_, nullptr, &ahead},
                  vectors_, (count + W - 1) / W);
    ahead.rest();
    const int64_t* limits = plan.read_limit + piece.read;
    Running* running = running_ + index * vectors_;
    constexpr int stride = kBlock / Dot::step;
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t limit = limits[i / group_] - piece.key - at;
      keep_[i] = soften<Dot>(scores_ + i * kBlock, std::clamp<int64_t>(limit, 0, count), factor_,
                             running[i], weights_ + i * stride);
    }
    const Rows<KV> values = rows(call_.v, kv_head, call_.value_dim);
    values.find(slots, count, row);
    ahead = values.ahead(slots + kBlock, next, next_row);
    if (at_once) ahead.rest();
    pack_values<Dot>(row, count, values.dim, values_);
    multiply<Dot>({weights_, values_, out_ + index * vectors_ * width_, stride, width_, width_,
                   (count + Dot::step - 1) / Dot::step, keep_, &ahead},
                  vectors_, columns_);
    ahead.rest();
  }

  Rows<KV> rows(const Tensor& cache, int64_t head, int64_t dim) const {
    return {static_cast<const KV*>(cache.data) + head * cache.head_stride, cache.row_stride,
            int(dim)};
  }

  // A row that no other task has a part of is final; of the others, store what to merge.
  void store_rows(const Task& task, int64_t kv_head, int64_t index) {
    const Schedule& schedule = *call_.schedule;
    const int64_t* row = call_.plan->read_row + schedule.pieces[task.first_piece].read;
    for (int64_t i = 0; i < vectors_; ++i) {
      const int64_t head = kv_head * group_ + i % group_;
      const Running& running = running_[index * vectors_ + i];
      const float* out = out_ + (index * vectors_ + i) * width_;
      const float total = sum(running.total);
      if (schedule.is_whole(row[i / group_])) {
        call_.write_output(row[i / group_], head, out, total);
      } else {
        const int64_t to = (task.partial + i / group_) * call_.heads + head;
        std::copy_n(out, call_.value_dim, call_.partial_out + to * call_.value_dim);
        call_.partial_weight[2 * to] = running.maximum;
        call_.partial_weight[2 * to + 1] = total;
      }
    }
  }

  const Call& call_;
  const int64_t group_;
  const int lanes_, width_, columns_;
  const float factor_;  // scale * log2(e): weights are powers of two
  int64_t vectors_ = 0;
  uint32_t *keys_, *values_, *weights_, *queries_;
  float *scores_, *keep_, *out_;
  Running* running_;
};

}  // namespace hogwild
