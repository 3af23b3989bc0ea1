// Attention over a schedule, shared out among a crew.
#pragma once

#include <array>
#include <cmath>

#include "crew.h"
#include "worker.h"

namespace hogwild {

inline void merge_row(const Call& call, int64_t row) {
  const Schedule& schedule = *call.schedule;
  const int64_t first = schedule.row_start[row], last = schedule.row_start[row + 1];
  if (schedule.is_whole(row)) return;
  std::array<float, kMaxDim> out;
  for (int64_t head = 0; head < call.heads; ++head) {
    auto at = [&](int64_t i) { return schedule.row_partial[i] * call.heads + head; };
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t i = first; i < last; ++i) {
      maximum = std::max(maximum, call.partial_weight[2 * at(i)]);
    }
    float total = 0.0f;
    std::fill_n(out.begin(), call.value_dim, 0.0f);
    for (int64_t i = first; i < last; ++i) {
      const float share = std::exp2(call.partial_weight[2 * at(i)] - maximum);
      total += share * call.partial_weight[2 * at(i) + 1];
      const float* partial = call.partial_out + at(i) * call.value_dim;
      for (int64_t d = 0; d < call.value_dim; ++d) out[d] += share * partial[d];
    }
    call.write_output(row, head, out.data(), total);
  }
}

template <class Dot, class KV>
void attend(Crew& crew, const Call& call) {
  const int64_t tasks = call.schedule->tasks.size();
  // A task takes all KV heads of a key together, they lie side by side. Heads are only split
  // off where there are too few tasks for the threads, or the task computes long anyway.
  const bool wide = call.schedule->widest * call.heads / call.kv_heads > 16;
  const int64_t wanted = wide ? call.kv_heads : (4 * call.threads + tasks - 1) / tasks;
  const int64_t splits = std::min(call.kv_heads, wanted);
  crew.run(tasks * splits, [&](int64_t unit) {
    const int64_t split = unit % splits;
    Worker<Dot, KV>(call).run(call.schedule->tasks[unit / splits],
                              split * call.kv_heads / splits,
                              (split + 1) * call.kv_heads / splits);
  });
  crew.run(call.schedule->partials ? call.plan->num_rows : 0,
           [&](int64_t row) { merge_row(call, row); });
}

inline void attend(Crew& crew, const Call& call) {
#if defined(__AVX512BF16__)
  // Queries in float would lose by it.
  if (call.kv_type == Type::bfloat16 && call.q_type == Type::bfloat16) {
    return attend<PairDot, BFloat16>(crew, call);
  }
#endif
  with_type(call.kv_type,
            [&](auto element) { attend<FloatDot, decltype(element)>(crew, call); });
}

}  // namespace hogwild
