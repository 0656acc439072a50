// What the files of the backend share.
#pragma once

#include <functional>
#include <string>

namespace backend {

// Note that an operator ran here. Python reads the notes through opbook_backend::calls.
void note(const std::string& call);

// Put a task into the queue of the current stream, which runs it later.
void launch(std::function<void()> task);

}  // namespace backend
