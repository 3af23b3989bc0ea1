// Cutting a plan into tasks of about equal work. Made once per plan, used by all layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hogwild {

// The arrays of a Plan, see plan.py. Mirrored by cpp.py.
struct Plan {
  int64_t num_rows;
  int64_t num_segments;
  const int64_t* slots;
  const int64_t* segment_start;
  const int64_t* read_start;
  const int64_t* read_row;
  const int64_t* read_limit;
};

// Consecutive keys of one segment for consecutive reads of it.
struct Piece {
  int64_t slot;   // index into the plan's slots of the first key
  int64_t key;    // that key's index in its segment
  int64_t keys;
  int64_t read;   // the first read
};

// Pieces of several segments which the same query rows read, computed in one go: the rows'
// running softmax goes on from piece to piece and leaves one partial result per row.
struct Task {
  int64_t first_piece;
  int64_t last_piece;
  int64_t reads;
  int64_t partial;  // of the first row; the next rows' follow
};

struct Schedule {
  // Query vectors (rows x heads of a group) that share a packed block of keys.
  static constexpr int64_t kVectors = 48;
  // A task's keys depend on its segments only, never on what else is in the batch, so that
  // a row's result doesn't either. Tiles with many rows are left long: they are enough work
  // without being cut, and partial results stay small beside the keys themselves.
  static constexpr int64_t kKeys = 256;
  static constexpr int64_t kKeysPerRead = 64;

  std::vector<Piece> pieces;
  std::vector<Task> tasks;
  std::vector<int64_t> row_start;   // [rows + 1]: row r has the partials
  std::vector<int64_t> row_partial;  // row_partial[row_start[r]], ...
  int64_t partials = 0;
  int64_t widest = 0;  // most reads of a task

  Schedule(const Plan& plan, int64_t group) {
    const int64_t tile = std::max<int64_t>(1, kVectors / group);
    for (int64_t first = 0; first < plan.num_segments;) {
      int64_t last = first + 1;
      while (last < plan.num_segments && same_rows(plan, first, last)) ++last;
      const int64_t reads = plan.read_start[first + 1] - plan.read_start[first];
      for (int64_t at = 0; at < reads; at += tile) {
        cut(plan, first, last, at, std::min(tile, reads - at), std::max(kKeys, kKeysPerRead * reads));
      }
      first = last;
    }
    list_partials(plan);
  }

  // Does one task compute all of the row, and write it at once?
  bool is_whole(int64_t row) const { return row_start[row + 1] - row_start[row] == 1; }

 private:
  static bool same_rows(const Plan& plan, int64_t a, int64_t b) {
    const int64_t *start = plan.read_start, *row = plan.read_row;
    return start[a + 1] - start[a] == start[b + 1] - start[b] &&
           std::equal(row + start[a], row + start[a + 1], row + start[b]);
  }

  // Tasks of at most `budget` keys for reads [at, at + reads) of the segments [first, last).
  void cut(const Plan& plan, int64_t first, int64_t last, int64_t at, int64_t reads, int64_t budget) {
    int64_t room = 0;
    for (int64_t s = first; s < last; ++s) {
      const int64_t read = plan.read_start[s] + at;
      const int64_t* limit = plan.read_limit + read;
      const int64_t keys = *std::max_element(limit, limit + reads);
      for (int64_t key = 0; key < keys;) {
        if (room == 0) {
          const int64_t piece = pieces.size();
          tasks.push_back({piece, piece, reads, partials});
          partials += reads;
          widest = std::max(widest, reads);
          room = budget;
        }
        const int64_t some = std::min(room, keys - key);
        pieces.push_back({plan.segment_start[s] + key, key, some, read});
        ++tasks.back().last_piece;
        key += some;
        room -= some;
      }
    }
  }

  void list_partials(const Plan& plan) {
    row_start.assign(plan.num_rows + 1, 0);
    for_each_partial(plan, [&](int64_t row, int64_t) { ++row_start[row + 1]; });
    for (int64_t row = 0; row < plan.num_rows; ++row) row_start[row + 1] += row_start[row];
    row_partial.resize(partials);
    std::vector<int64_t> next(row_start.begin(), row_start.end() - 1);
    for_each_partial(plan, [&](int64_t row, int64_t partial) { row_partial[next[row]++] = partial; });
  }

  template <class Visit>
  void for_each_partial(const Plan& plan, Visit visit) const {
    for (const Task& task : tasks) {
      const int64_t* row = plan.read_row + pieces[task.first_piece].read;
      for (int64_t i = 0; i < task.reads; ++i) visit(row[i], task.partial + i);
    }
  }
};

}  // namespace hogwild
