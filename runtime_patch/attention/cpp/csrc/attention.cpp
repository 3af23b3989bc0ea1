// The library's three functions, called through ctypes by cpp.py. No torch headers: this
// compiles in seconds and does not depend on the torch version.

#include "attend.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT hogwild::Schedule* hogwild_schedule(const hogwild::Plan* plan, int64_t group,
                                           int64_t* partials) {
  auto* schedule = new hogwild::Schedule(*plan, group);
  *partials = schedule->partials;
  return schedule;
}

EXPORT void hogwild_free(hogwild::Schedule* schedule) { delete schedule; }

EXPORT void hogwild_attend(const hogwild::Call* call) {
  hogwild::Crew::gather(call->threads,
                        [&](hogwild::Crew& crew) { hogwild::attend(crew, *call); });
}
