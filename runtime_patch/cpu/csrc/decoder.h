// All layers of a decoder in one go, for the few rows of a decode step.
//
// The same operators in the same order as a model of the Llama family takes them one by one
// (norm, q k v, norms of heads, rotation, attention, output, norm, gate and up, activation,
// down), rounding in the same places, so that both ways give the same bits. What is saved is
// all that lies between two operators.
#pragma once

#include <vector>

#include "attend.h"
#include "linear.h"
#include "row_ops.h"

namespace hogwild {

// Pointers to one layer's weights, in the model's type, and to its cache. Mirrored, as the
// other structures here, by decoder.py, which has checked them. Biases and the norms of heads
// may be null.
struct Layer {
  const void *input_norm, *qkv, *qkv_bias, *q_norm, *k_norm, *output, *output_bias;
  const void *post_norm, *gate_up, *gate_up_bias, *down, *down_bias;
  void *k_cache, *v_cache;
};

struct Decoder {
  Type type;  // of weights, activations and cache
  int64_t num_layers;
  const Layer* layers;
  const void* final_norm;
  int64_t hidden, heads, kv_heads, dim, inner;
  double epsilon, head_epsilon;
  const float* table;  // [table_rows, 2 * half], cos in front of sin
  int64_t table_rows, half, neox;
};

// One forward. hidden: [rows, hidden], the embeddings; becomes the output of the final norm.
struct Step {
  int64_t rows, threads;
  void* hidden;
  const int64_t* positions;
  const int64_t* slots;  // of the new keys and values
  Call* attention;       // all but the tensors' data, for q [rows, heads, dim] inside of qkv
};

template <class T>
class DecoderRun {
 public:
  DecoderRun(const Decoder& model, const Step& step, Crew& crew)
      : model_(model), step_(step), crew_(crew), q_size_(model.heads * model.dim),
        kv_size_(model.kv_heads * model.dim), hidden_(static_cast<T*>(step.hidden)),
        residual_(step.rows * model.hidden), qkv_(step.rows * width()),
        attended_(step.rows * q_size_), gate_up_(step.rows * 2 * model.inner),
        narrow_(step.rows, model.hidden), heads_(step.rows, q_size_),
        inner_(step.rows, model.inner) {}

  void run() {
    for (int64_t i = 0; i < model_.num_layers; ++i) {
      const Layer& layer = model_.layers[i];
      norm(layer.input_norm, i == 0);
      multiply(layer.qkv, layer.qkv_bias, width(), narrow_, qkv_.data());
      attend(layer);
      multiply(layer.output, layer.output_bias, model_.hidden, heads_, hidden_);
      norm(layer.post_norm, false);
      multiply(layer.gate_up, layer.gate_up_bias, 2 * model_.inner, narrow_, gate_up_.data());
      activate();
      multiply(layer.down, layer.down_bias, model_.hidden, inner_, hidden_);
    }
    for_rows(model_.hidden, [&](int64_t row) { norm_row(row, model_.final_norm, false, hidden(row)); });
  }

 private:
  int64_t width() const { return q_size_ + 2 * kv_size_; }
  T* hidden(int64_t row) { return hidden_ + row * model_.hidden; }

  // work(row) for all rows, shared out if they are long.
  template <class Work>
  void for_rows(int64_t size, const Work& work) {
    if (step_.rows * size < 1 << 12) {
      for (int64_t row = 0; row < step_.rows; ++row) work(row);
    } else {
      crew_.run(step_.rows, work);
    }
  }

  void multiply(const void* weight, const void* bias, int64_t outputs, const PackedRows<T>& x,
                T* out) {
    const Linear<T> layer{static_cast<const T*>(weight), static_cast<const T*>(bias), outputs,
                          x.depth()};
    linear(crew_, layer, x, out, outputs);
  }

  // The norm of hidden + residual, whose sum is the new residual.
  void norm_row(int64_t row, const void* weight, bool first, T* out) {
    T* residual = residual_.data() + row * model_.hidden;
    const T* scales = static_cast<const T*>(weight);
    if (first) {
      std::copy_n(hidden(row), model_.hidden, residual);
      rms_norm<T, T>(hidden(row), nullptr, scales, model_.hidden, epsilon(), out, nullptr);
    } else {
      rms_norm<T, T>(hidden(row), residual, scales, model_.hidden, epsilon(), out, residual);
    }
  }

  void norm(const void* weight, bool first) {
    for_rows(model_.hidden, [&](int64_t row) {
      norm_row(row, weight, first, hidden(row));
      narrow_.set(row, hidden(row));
    });
  }

  void attend(const Layer& layer) {
    for_rows(width(), [&](int64_t row) {
      T* q = qkv_.data() + row * width();
      T *k = q + q_size_, *v = k + kv_size_;
      norm_heads(q, model_.heads, layer.q_norm);
      norm_heads(k, model_.kv_heads, layer.k_norm);
      const float* cos = model_.table + step_.positions[row] * 2 * model_.half;
      const float* sin = cos + model_.half;
      rotate(q, model_.heads, model_.dim, cos, sin, model_.half, model_.neox);
      rotate(k, model_.kv_heads, model_.dim, cos, sin, model_.half, model_.neox);
      store(k, layer.k_cache, step_.attention->k, step_.slots[row]);
      store(v, layer.v_cache, step_.attention->v, step_.slots[row]);
    });
    Call& call = *step_.attention;
    call.q.data = qkv_.data();
    call.k.data = layer.k_cache;
    call.v.data = layer.v_cache;
    call.out.data = attended_.data();
    hogwild::attend(crew_, call);
    for_rows(q_size_, [&](int64_t row) { heads_.set(row, attended_.data() + row * q_size_); });
  }

  void norm_heads(T* heads, int64_t count, const void* weight) {
    if (!weight) return;
    for (int64_t head = 0; head < count; ++head, heads += model_.dim) {
      rms_norm<T, T>(heads, nullptr, static_cast<const T*>(weight), model_.dim,
                     float(model_.head_epsilon), heads, nullptr);
    }
  }

  void store(const T* heads, void* cache, const Tensor& strides, int64_t slot) {
    for (int64_t head = 0; head < model_.kv_heads; ++head) {
      std::copy_n(heads + head * model_.dim, model_.dim,
                  static_cast<T*>(cache) + strides.at(slot, head));
    }
  }

  void activate() {
    for_rows(model_.inner, [&](int64_t row) {
      T* gate = gate_up_.data() + row * 2 * model_.inner;
      silu_and_mul(gate, gate + model_.inner, model_.inner, gate);
      inner_.set(row, gate);
    });
  }

  float epsilon() const { return float(model_.epsilon); }

  const Decoder& model_;
  const Step& step_;
  Crew& crew_;
  const int64_t q_size_, kv_size_;
  T* hidden_;
  std::vector<T> residual_, qkv_, attended_, gate_up_;
  PackedRows<T> narrow_, heads_, inner_;
};

}  // namespace hogwild
