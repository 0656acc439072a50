// A library that does its work while it is loaded: nobody calls anything in it.
#include <cstdio>

// [loaded]
#if defined(PLANTED)
#define MESSAGE "code of somebody else, which runs as you"
#else
#define MESSAGE "the code that was built"
#endif

namespace {

struct OnLoad {
  OnLoad() { std::puts(MESSAGE), std::fflush(stdout); }
} on_load;

}  // namespace
// [/loaded]
