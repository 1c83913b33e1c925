// Chosen rows of a matrix: their layer norm, and what is added onto them, each in one pass. One thread of a CPU.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace {

constexpr int CHAINS = 4;  // sums under way at once, as one waits for its last addition

inline Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

// The sum of `term(i)` over i = 0, LANES, … below `width`.
template <typename Term>
inline float total(int64_t width, Term term) {
    Lanes sums[CHAINS] = {};
    int64_t i = 0;
    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++) sums[c] += term(i + c * LANES);
    for (; i < width; i += LANES) sums[0] += term(i);
    const Lanes sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float parts[LANES];
    std::memcpy(parts, &sum, sizeof sum);
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) parts[j] += parts[j + half];
    return parts[0];
}

}  // namespace

extern "C" void norm_rows(
    const float* h, const int64_t* index,  // (M, width); (n,) rows of it, or null for the first n
    const float* weight, const float* bias,  // (width,)
    float* out,  // (n, width)
    int64_t n, int64_t width, float epsilon) {  // width a multiple of LANES
    const float share = 1.0f / (float)width;
    for (int64_t r = 0; r < n; r++, out += width) {
        const float* from = h + (index ? index[r] : r) * width;
        const float mean = total(width, [&](int64_t i) { return load(from + i); }) * share;
        const auto square = [&](int64_t i) {
            const Lanes off = load(from + i) - mean;
            return off * off;
        };
        const float scale = 1.0f / std::sqrt(total(width, square) * share + epsilon);
        for (int64_t i = 0; i < width; i += LANES) {
            const Lanes normed = (load(from + i) - mean) * scale * load(weight + i) + load(bias + i);
            std::memcpy(out + i, &normed, sizeof normed);
        }
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
