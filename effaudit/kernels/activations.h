// What may follow a linear layer.
#pragma once
#include "lanes.h"

enum Activation { NONE, GELU, RELU };

// The error function to 3e-7: beyond END it is 1, within x times a polynomial in t, which x^2 is stretched to on
// [-1, 1] (fitted to it by least squares at Chebyshev's nodes).
inline Lanes error_function(Lanes x) {
    constexpr float END = 3.92f;
    constexpr float TERMS[] = {
        3.607368171e-01f, -1.801086515e-01f, 1.340842247e-01f, -1.091779247e-01f, 9.060313553e-02f, -7.403659075e-02f,
        5.835359544e-02f, -4.334324971e-02f, 2.983444370e-02f, -2.025861852e-02f, 1.398590393e-02f, -7.268768735e-03f,
        2.099951729e-03f, -1.687437296e-03f, 2.042456297e-03f, -7.572448812e-04f};
    const Lanes held = x > END ? Lanes{} + END : x < -END ? Lanes{} - END : x;
    const Lanes t = held * held * (2 / (END * END)) - 1.0f;
    Lanes sum = Lanes{} + TERMS[15];
    UNROLL for (int i = 14; i >= 0; i--) sum = sum * t + TERMS[i];
    return x > END ? Lanes{} + 1.0f : x < -END ? Lanes{} - 1.0f : held * sum;
}

template <int ACTIVATION>
inline Lanes activated(Lanes x) {
    if constexpr (ACTIVATION == GELU) return x * 0.5f * (1.0f + error_function(x * 0.70710678f));
    if constexpr (ACTIVATION == RELU) return x < 0.0f ? Lanes{} : x;
    return x;
}
