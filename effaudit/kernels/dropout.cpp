// Dropout whose mask follows from a seed and each element's place, so that the backward pass draws the same one anew.
#include <cstdint>
#include <cstring>

namespace {

// 64 random bits (SplitMix64, Steele, Lea and Flood 2014): 16 for each of four elements.
inline uint64_t drawn(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

inline float scaled(float x, float factor) { return x * factor; }

// A bfloat16: the upper half of a float, rounded to even.
inline uint16_t scaled(uint16_t x, float factor) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    value *= factor;
    std::memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
void drop(const T* __restrict x, T* __restrict out, int64_t n, uint64_t seed, uint32_t n_dropped, float factor) {
    constexpr int CHUNK = 64;  // draws at once, so that each loop is a vector's
    uint64_t draws[CHUNK];
    for (int64_t first = 0; first < n; first += 4 * CHUNK) {
        for (int i = 0; i < CHUNK; i++) draws[i] = drawn(seed, (uint64_t)(first / 4 + i));
        uint16_t codes[4 * CHUNK];
        std::memcpy(codes, draws, sizeof draws);
        const int64_t rest = n - first;
        const int count = rest < 4 * CHUNK ? (int)rest : 4 * CHUNK;
        for (int i = 0; i < count; i++) out[first + i] = codes[i] >= n_dropped ? scaled(x[first + i], factor) : T{};
    }
}

}  // namespace

// `n_dropped` of 65536 go, the others are multiplied by `factor`.
extern "C" void dropout_float32(
    const float* x, float* out, int64_t n, uint64_t seed, uint32_t n_dropped, float factor) {
    drop(x, out, n, seed, n_dropped, factor);
}

extern "C" void dropout_bfloat16(
    const uint16_t* x, uint16_t* out, int64_t n, uint64_t seed, uint32_t n_dropped, float factor) {
    drop(x, out, n, seed, n_dropped, factor);
}
