// MUSA's names, each CUDA's under another name, so that nvcc can check neg.mu. A
// compiler for MUSA does not define __CUDACC__, and portable.h has to do without it.
#pragma once

#include <cuda_runtime.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#undef __CUDACC__

using musaStream_t = cudaStream_t;
#define musaDevAttrMultiProcessorCount cudaDevAttrMultiProcessorCount
#define musaDeviceGetAttribute cudaDeviceGetAttribute
#define musaGetDevice cudaGetDevice
#define musaGetErrorString cudaGetErrorString
#define musaGetLastError cudaGetLastError
#define musaSuccess cudaSuccess
