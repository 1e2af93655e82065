// Words of 4 bytes: what one lane of a warp moves at a time, as one element of 4 bytes or two of 2.
// ELEMENT_BYTES is the type's, from the catalog.
#pragma once

#if ELEMENT_BYTES == 4
typedef unsigned int Element;
#else
typedef unsigned short Element;
#endif

constexpr int PACK = 4 / ELEMENT_BYTES;  // elements in a word

// Whether every row of an array begins at a multiple of `bytes`.
__device__ __forceinline__ bool rows_aligned(const Element* array, int leading, int bytes) {
    const unsigned long long distance = (unsigned long long)leading * ELEMENT_BYTES;
    return ((reinterpret_cast<unsigned long long>(array) | distance) & (bytes - 1)) == 0;
}

// A[m][n] .. A[m][n + PACK - 1] of an array of rows x columns. WHOLE: in one access, of an aligned word that is inside;
// otherwise element by element, zero where there is none.
template <bool WHOLE>
__device__ __forceinline__ unsigned load_word(const Element* A, int lda, int m, int n, int rows, int columns) {
    const Element* from = A + (long long)m * lda + n;
    if constexpr (WHOLE) {
        return *reinterpret_cast<const unsigned*>(from);
    } else {
        unsigned word = 0;
#pragma unroll
        for (int p = 0; p < PACK; ++p)
            if (m < rows && n + p < columns) word |= (unsigned)from[p] << (16 * p);
        return word;
    }
}

// The opposite: C[n][m] .. C[n][m + PACK - 1].
template <bool WHOLE>
__device__ __forceinline__ void store_word(Element* C, int ldc, int n, int m, int rows, int columns, unsigned word) {
    Element* to = C + (long long)n * ldc + m;
    if constexpr (WHOLE) {
        *reinterpret_cast<unsigned*>(to) = word;
    } else {
#pragma unroll
        for (int p = 0; p < PACK; ++p)
            if (n < rows && m + p < columns) to[p] = (Element)(word >> (16 * p));
    }
}

// Transposes PACK x PACK elements in registers: word p, a piece of row p, becomes a piece of column p.
// PTX ISA, 'prmt': each digit picks one of the eight bytes of two words.
__device__ __forceinline__ void transpose_words(unsigned (&word)[PACK]) {
    if constexpr (PACK == 2) {
        const unsigned first = word[0], second = word[1];
        word[0] = __byte_perm(first, second, 0x5410);  // the low halves
        word[1] = __byte_perm(first, second, 0x7632);  // the high halves
    }
}
