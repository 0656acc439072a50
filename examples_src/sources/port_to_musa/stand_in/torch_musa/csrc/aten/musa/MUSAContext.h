// The one function of torch_musa that neg.mu calls.
#pragma once

#include <musa_runtime.h>

namespace at::musa {
musaStream_t getCurrentMUSAStream();
}
