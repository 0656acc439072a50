// Run a model that AOTInductor compiled, and its operator, in a program without Python.
#include <ATen/core/Formatting.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: run_model MODEL.pt2 ROWS [LIBRARY ...]\n";
    return 2;
  }
  for (int i = 3; i < argc; ++i) {
    if (!dlopen(argv[i], RTLD_NOW)) {  // loading it registers its operators
      std::cerr << dlerror() << "\n";
      return 1;
    }
  }
  try {
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    const at::Tensor input = at::ones({std::atoi(argv[2]), 8});
    std::cout << model.run({input}).at(0) << "\n";
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << "\n";
    return 1;
  }
  const bool has_python = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  std::cout << "Python in this process: " << (has_python ? "yes" : "no") << "\n";
}
