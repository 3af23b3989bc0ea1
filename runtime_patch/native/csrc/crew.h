// Threads that share out small pieces of work, without waiting for one that is not there.
//
// A forward is hundreds of pieces of work of some ten microseconds with a dependency between
// each and the next. The barriers of OpenMP would wait at each for every thread, also for one
// that the operating system has put aside for another process, and that had nothing left to
// do. Here the lead waits only for parts that a helper has begun.
#pragma once

#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hogwild {

class Crew {
 public:
  // lead(crew) on this thread; the others of an OpenMP team of `threads` help it meanwhile.
  template <class Lead>
  static void gather(int64_t threads, const Lead& lead) {
    Crew crew(threads);
    if (threads <= 1) return lead(crew);
#pragma omp parallel num_threads(threads)
    {
      if (omp_get_thread_num() == 0) {
        lead(crew);
        crew.dismissed_.store(true, std::memory_order_release);
      } else {
        crew.help();
      }
    }
  }

  int64_t threads() const { return threads_; }

  // work(part) for every part in [0, parts), in no order. Only the lead may call it.
  template <class Work>
  void run(int64_t parts, const Work& work) {
    if (threads_ <= 1 || parts <= 1) {
      for (int64_t part = 0; part < parts; ++part) work(part);
      return;
    }
    const uint64_t job = ++jobs_;
    Job& slot = slots_[job % 2];
    slot.call.store([](const void* w, int64_t part) { (*static_cast<const Work*>(w))(part); },
                    std::memory_order_relaxed);
    slot.work.store(&work, std::memory_order_relaxed);
    slot.parts.store(parts, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    ticket_.store(job << kPartBits, std::memory_order_release);
    int64_t mine = 0;
    for (;; ++mine) {
      const int64_t part = ticket_.fetch_add(1, std::memory_order_relaxed) & kPartMask;
      if (part >= parts) break;
      work(part);
    }
    for (int turn = 0; done_.load(std::memory_order_acquire) + mine < parts;) rest(turn);
  }

 private:
  explicit Crew(int64_t threads) : threads_(threads) {}

  static constexpr int kPartBits = 32;
  static constexpr uint64_t kPartMask = (uint64_t(1) << kPartBits) - 1;

  struct Job {
    std::atomic<void (*)(const void*, int64_t)> call{nullptr};
    std::atomic<const void*> work{nullptr};
    std::atomic<int64_t> parts{0};
  };

  // A helper may read a slot that the lead is filling for a later job; taking the part then
  // fails, because the ticket names another job.
  void help() {
    for (int turn = 0; !dismissed_.load(std::memory_order_acquire);) {
      uint64_t ticket = ticket_.load(std::memory_order_acquire);
      const Job& slot = slots_[(ticket >> kPartBits) % 2];
      const auto call = slot.call.load(std::memory_order_relaxed);
      const void* work = slot.work.load(std::memory_order_relaxed);
      const int64_t part = ticket & kPartMask;
      if (part >= slot.parts.load(std::memory_order_relaxed)) {
        rest(turn);
      } else if (ticket_.compare_exchange_strong(ticket, ticket + 1, std::memory_order_acq_rel)) {
        call(work, part);
        done_.fetch_add(1, std::memory_order_release);
        turn = 0;
      }
    }
  }

  // Waits a moment; gives the core away when others have had it for long.
  static void rest(int& turn) {
    if (++turn % 4096 == 0) {
      sched_yield();
    } else {
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
  }

  const int64_t threads_;
  uint64_t jobs_ = 0;
  Job slots_[2];
  // The job in the upper half, its next free part in the lower.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};  // parts finished by helpers
  alignas(64) std::atomic<bool> dismissed_{false};
};

}  // namespace hogwild
