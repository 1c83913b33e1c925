// Vectors as wide as this CPU has them, and what the kernels do with them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(LANES * sizeof(int32_t))));

inline Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline void store(float* to, Lanes x) { std::memcpy(to, &x, sizeof x); }

// Lanes of `a` and then `b` in the order of `places`, which are constants.
inline Lanes shuffled(Lanes a, Lanes b, Ints places) {
#if defined(__clang__)
    Lanes out;
    for (int j = 0; j < LANES; j++) out[j] = places[j] < LANES ? a[places[j]] : b[places[j] - LANES];
    return out;
#else
    return __builtin_shuffle(a, b, places);
#endif
}

// All lanes by an operation on two of them, halves first.
template <int HALF = LANES / 2, typename Operation>
inline float folded(Lanes x, Operation operation) {
    Ints places;
    for (int j = 0; j < LANES; j++) places[j] = (j + HALF) % LANES;
    x = operation(x, shuffled(x, x, places));
    if constexpr (HALF > 1)
        return folded<HALF / 2>(x, operation);
    else
        return x[0];
}

constexpr int CHAINS = 4;  // sums under way at once, as one waits for its last addition

// The sum of `term(i)` over i = 0, LANES, … below `width`.
template <typename Term>
inline float total(int64_t width, Term term) {
    Lanes sums[CHAINS] = {};
    int64_t i = 0;
    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++) sums[c] += term(i + c * LANES);
    for (; i < width; i += LANES) sums[0] += term(i);
    return folded((sums[0] + sums[1]) + (sums[2] + sums[3]), [](Lanes a, Lanes b) { return a + b; });
}

// Mean of a row, `width` a multiple of LANES, and one over its standard deviation.
inline void moments(const float* row, int64_t width, float epsilon, float& mean, float& factor) {
    const float share = 1.0f / (float)width, middle = total(width, [&](int64_t i) { return load(row + i); }) * share;
    const auto square = [&](int64_t i) {
        const Lanes off = load(row + i) - middle;
        return off * off;
    };
    mean = middle, factor = 1.0f / std::sqrt(total(width, square) * share + epsilon);
}
