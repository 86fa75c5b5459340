// Functions that CPUs and GPUs run from the same lines.
#pragma once

#ifdef __CUDACC__
#define PIPER_ON_BOTH __host__ __device__
#else
#define PIPER_ON_BOTH
#endif
