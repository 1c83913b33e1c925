// Chosen rows of a matrix: their layer norm, and what is added onto them, each in one pass. One thread of a CPU.
#include <cstdint>

#include "lanes.h"

extern "C" void norm_rows(
    const float* h, const int64_t* index,  // (M, width); (n,) rows of it, or null for the first n
    const float* weight, const float* bias,  // (width,)
    float* out,  // (n, width)
    int64_t n, int64_t width, float epsilon) {  // width a multiple of LANES
    for (int64_t r = 0; r < n; r++, out += width) {
        const float* from = h + (index ? index[r] : r) * width;
        float mean, factor;
        moments(from, width, epsilon, mean, factor);
        for (int64_t i = 0; i < width; i += LANES)
            store(out + i, (load(from + i) - mean) * factor * load(weight + i) + load(bias + i));
    }
}

extern "C" void add_rows(
    float* h, const int64_t* index,  // (M, width); (n,) rows of it, each once
    const float* x, int64_t is_whole,  // (n, width), or of which the same rows are taken where it is (M, width)
    const float* gate,  // (n,), or null for 1
    int64_t n, int64_t width) {
    for (int64_t r = 0; r < n; r++) {
        float* __restrict to = h + index[r] * width;
        const float* __restrict from = x + (is_whole ? index[r] : r) * width;
        const float factor = gate ? gate[r] : 1.0f;
        for (int64_t i = 0; i < width; i++) to[i] += factor * from[i];
    }
}
