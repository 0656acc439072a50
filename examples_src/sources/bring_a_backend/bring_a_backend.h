// What the backend and its kernels share.
#pragma once

#include <string>

namespace backend {

// Note that an operator ran here. Python reads the notes through opbook_backend::calls.
void note(const std::string& call);

}  // namespace backend
