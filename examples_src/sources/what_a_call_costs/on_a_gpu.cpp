// The starter's operator a second time, for a gradient that is registered in Python.
#include "../../../starter/cpp/csrc/swiglu_op.cpp"

namespace starter {

STABLE_TORCH_LIBRARY_FRAGMENT(starter, m) {
  m.def("registered(Tensor gate, Tensor up, float? limit=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) {
  m.impl("registered", TORCH_BOX(&swiglu<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(starter, CUDA, m) {
  m.impl("registered", TORCH_BOX(&swiglu<Gpu>));
}
#endif

}  // namespace starter
