// Attention of chosen queries on one thread of a CPU: a vector lane a query, keys that none of them sees left out.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "lanes.h"

namespace {

constexpr int32_t NOWHERE = std::numeric_limits<int32_t>::max(), LAST = NOWHERE - 1;  // seen by no query, sees all
constexpr int KEYS = 8;  // scores that are summed in registers at once

// e^x for x <= 0, to 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes, expf).
inline Lanes exponential(Lanes x) {
    x = x > -87.0f ? x : Lanes{} - 87.0f;
    Ints n = __builtin_convertvector(x * 1.44269504f - 0.5f, Ints);
    Lanes whole = __builtin_convertvector(n, Lanes);
    Lanes r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    Lanes y = 1.9875691500e-4f * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    return y * (Lanes)((n + 127) << 23);
}

// `n` values at the start of a cache line, as vectors want them.
template <typename T>
struct Buffer {
    explicit Buffer(int64_t n) : data((T*)std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64)) {}
    ~Buffer() { std::free(data); }
    T& operator[](int64_t i) { return data[i]; }
    T* data;
};

// `dim` is a multiple of DIMS, the outputs that are summed in registers at once.
template <int DIMS>
void attend(
    const float* q, int64_t q_row, const float* k, const float* v, int64_t row, const int64_t* positions,
    const int64_t* counts, const uint8_t* real, const float* gate, float* out, int64_t examples, int64_t tokens,
    int64_t heads, int64_t dim, bool is_causal) {
    const Lanes HIDDEN = Lanes{} - std::numeric_limits<float>::infinity();
    const float scale = 1.0f / std::sqrt((float)dim);
    const int64_t width = heads * dim, padded = (tokens + KEYS - 1) / KEYS * KEYS;
    Buffer<float> keys(padded * dim), values(padded * dim);
    Buffer<int32_t> places(padded);
    Buffer<Lanes> scores(padded), query(dim), mixed(dim);
    for (int64_t b = 0; b < examples; b++) {
        const int64_t n_queries = counts ? counts[b] : tokens;
        int n = 0;
        for (int64_t t = 0; t < tokens; t++)
            if (!real || real[b * tokens + t]) places[n++] = (int32_t)t;
        const int n_padded = (n + KEYS - 1) / KEYS * KEYS;
        for (int j = n; j < n_padded; j++) places[j] = NOWHERE;
        for (int64_t h = 0; h < heads; h++) {
            for (int j = 0; j < n; j++) {
                const int64_t from = (b * tokens + places[j]) * row + h * dim;
                std::memcpy(&keys[j * dim], k + from, dim * sizeof(float));
                std::memcpy(&values[j * dim], v + from, dim * sizeof(float));
            }
            std::fill(&keys[n * dim], &keys[n_padded * dim], 0.0f);
            std::fill(&values[n * dim], &values[n_padded * dim], 0.0f);
            for (int64_t first = 0; first < n_queries; first += LANES) {
                const int64_t n_lanes = std::min<int64_t>(LANES, n_queries - first);
                Ints place = {};
                for (int lane = 0; lane < LANES; lane++) {
                    const int64_t at = first + std::min<int64_t>(lane, n_lanes - 1);
                    place[lane] = is_causal ? (int32_t)(positions ? positions[at] : at) : LAST;
                    for (int64_t i = 0; i < dim; i++) query[i][lane] = q[at * q_row + h * dim + i] * scale;
                }
                int seen = n_padded;
                if (is_causal) {
                    seen = (int)(std::upper_bound(places.data, places.data + n, place[LANES - 1]) - places.data);
                    seen = (seen + KEYS - 1) / KEYS * KEYS;
                }
                Lanes top = HIDDEN;
                for (int j = 0; j < seen; j += KEYS) {  // scores
                    Lanes sum[KEYS] = {};
                    const float* rows = &keys[j * dim];
                    for (int64_t i = 0; i < dim; i++)
                        for (int s = 0; s < KEYS; s++) sum[s] += rows[s * dim + i] * query[i];
                    for (int s = 0; s < KEYS; s++) {
                        sum[s] = places[j + s] <= place ? sum[s] : HIDDEN;
                        top = sum[s] > top ? sum[s] : top;
                        scores[j + s] = sum[s];
                    }
                }
                Lanes total = {};
                for (int j = 0; j < seen; j++) {
                    const Lanes e = exponential(scores[j] - top);
                    scores[j] = places[j] <= place ? e : Lanes{};
                    total += scores[j];
                }
                const Lanes share = (gate ? gate[b * heads + h] : 1.0f) / total;
                for (int64_t i = 0; i < dim; i += DIMS) {
                    Lanes sum[DIMS] = {};
                    for (int j = 0; j < seen; j++)
                        for (int s = 0; s < DIMS; s++) sum[s] += values[j * dim + i + s] * scores[j];
                    for (int s = 0; s < DIMS; s++) mixed[i + s] = sum[s] * share;
                }
                for (int64_t lane = 0; lane < n_lanes; lane++)
                    for (int64_t i = 0; i < dim; i++) out[(first + lane) * width + h * dim + i] = mixed[i][lane];
            }
        }
        q += n_queries * q_row;
        out += n_queries * width;
        if (positions) positions += n_queries;
    }
}

}  // namespace

extern "C" void row_attention(
    const float* q, int64_t q_row,  // (N, heads * dim), rows `q_row` apart
    const float* k, const float* v, int64_t row,  // (examples, tokens, heads * dim), rows `row` apart
    const int64_t* positions, const int64_t* counts,  // (N,) in a text, ascending; queries an example; null: all
    const uint8_t* real,  // (examples, tokens), or null where all are
    const float* gate,  // (examples, heads), or null for 1
    float* out,  // (N, heads * dim)
    int64_t examples, int64_t tokens, int64_t heads, int64_t dim, int is_causal) {
    auto run = dim % 16 == 0 ? attend<16> : attend<8>;
    run(q, q_row, k, v, row, positions, counts, real, gate, out, examples, tokens, heads, dim, is_causal);
}
