// What every kernel that replaces one of ATen's needs: its switches and its log. The
// environment is read once, when the library is loaded.
//
//   OPBOOK_ENABLE_OVERRIDES=1      register them; without it none is
//   OPBOOK_DISABLE_OVERRIDE_neg=1  all but this one
//   OPBOOK_LOG_CALLS=1             each call writes a line to stderr
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "../tensors.h"

namespace opbook {

// [switches]
inline bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && std::string(value) == "1";
}

// `op` is the operator's name without its namespace.
inline bool is_override_enabled(const char* op) {
  return is_set("OPBOOK_ENABLE_OVERRIDES") &&
         !is_set(std::string("OPBOOK_DISABLE_OVERRIDE_") + op);
}

inline const bool kLogCalls = is_set("OPBOOK_LOG_CALLS");
// [/switches]

// One line a call, in one write: lines of several threads do not mix. `by` says who did
// the work, where it is not our kernel.
inline void log_call(const char* op, const char* key, const Tensor& tensor,
                     const char* by = "") {
  if (!kLogCalls) return;
  const std::string line = std::string("opbook: ") + op + " " + key + " " +
                           torch::headeronly::toString(tensor.scalar_type()) + " " +
                           shape_of(tensor) + by + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace opbook
