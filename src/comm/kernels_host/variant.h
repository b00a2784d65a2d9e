// SPDX-License-Identifier: Apache-2.0
// Body of the kernels, compiled once per instruction set. The including file defines TUGLINE_VARIANT (a name)
// and is built with that set's flags. Nothing from the standard library's inline functions is used here:
// their out-of-line copies would be built with these flags too and might be the ones the linker keeps for
// everybody.
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#define TUGLINE_HAS_F16C 1
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "comm/kernels_host/reduce.h"

namespace tugline::comm {
namespace {

using Size = std::size_t;

// A caller's buffer need not be aligned as its elements are; the instructions are the same.
template <class T>
struct Anywhere {
  typedef T Type __attribute__((aligned(1), may_alias));
};
template <class T>
using Unaligned = typename Anywhere<T>::Type;

// f16 <-> f32, round to nearest even; the same bits as the F16C instructions give.
inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  std::uint32_t bits;
  if (magnitude >= 0x7c00u) {
    bits = sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | ((magnitude & 0x3ffu) != 0 ? 0x400000u : 0u);
  } else if (magnitude >= 0x400u) {
    bits = sign | ((magnitude + 0x1c000u) << 13);
  } else {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    __builtin_memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}

inline std::uint16_t float_to_half(float value) noexcept {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 lets the addition itself round at the right place.
    float shifted;
    __builtin_memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    std::uint32_t rounded;
    __builtin_memcpy(&rounded, &shifted, 4);
    return static_cast<std::uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

// Floats as wide as the instruction set's registers, and their bits.
#if defined(__AVX512F__)
constexpr Size kVectorBytes = 64;
#elif defined(__AVX__)
constexpr Size kVectorBytes = 32;
#else
constexpr Size kVectorBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
constexpr Size kFloats = kVectorBytes / sizeof(float);

// What one register of 16-bit floats becomes in f32. A codec says which element goes where.
constexpr Size kPair = 2 * kFloats;
struct Pair {
  Floats first;
  Floats second;
};

struct HalfCodec {
  static Pair load(const Unaligned<std::uint16_t>* from) noexcept {
    return {half(from), half(from + kFloats)};
  }
  static void store(Unaligned<std::uint16_t>* to, Pair values) noexcept {
    store_half(to, values.first);
    store_half(to + kFloats, values.second);
  }

 private:
#if defined(__AVX512F__)
  // All places, said openly: g++ 12 warns of an undefined register inside the intrinsics that choose nothing.
  static constexpr __mmask16 kAll = 0xffff;
#endif
  static Floats half(const Unaligned<std::uint16_t>* from) noexcept {
#if defined(__AVX512F__)
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(TUGLINE_HAS_F16C)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    Floats result;
    for (Size i = 0; i < kFloats; ++i) result[i] = half_to_float(from[i]);
    return result;
#endif
  }
  static void store_half(Unaligned<std::uint16_t>* to, Floats values) noexcept {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtps_ph(kAll, values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(TUGLINE_HAS_F16C)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (Size i = 0; i < kFloats; ++i) to[i] = float_to_half(values[i]);
#endif
  }
};

// bf16 is the upper half of an f32. Elements at even and at odd places part by a shift and a mask, which
// costs half of widening them in order (little-endian: an even place is the lower half of its word).
struct BFloatCodec {
  static Pair load(const Unaligned<std::uint16_t>* from) noexcept {
    Words words;
    __builtin_memcpy(&words, from, sizeof(words));
    return {__builtin_bit_cast(Floats, words << 16), __builtin_bit_cast(Floats, words & kUpper)};
  }
  static void store(Unaligned<std::uint16_t>* to, Pair values) noexcept {
    const Words words = round(values.first) >> 16 | (round(values.second) & kUpper);
    __builtin_memcpy(to, &words, sizeof(words));
  }

 private:
  static constexpr std::uint32_t kUpper = 0xffff0000u;

  // To nearest even; the lower half of the result is not to be used. A NaN stays one without a check: all
  // operands were bf16, so the lower half of its payload is 0 and rounding cannot carry out of it.
  static Words round(Floats values) noexcept {
    const auto bits = __builtin_bit_cast(Words, values);
    return bits + 0x7fffu + (bits >> 16 & 1u);
  }
};

// Operators. Signed integers are combined as unsigned ones of the same width: they wrap without undefined
// behaviour.
struct Sum {
  template <class T>
  static T apply(T a, T b) noexcept {
    return static_cast<T>(a + b);
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) noexcept {
    return static_cast<T>(a * b);
  }
  // u16 and narrower promote to int, whose product could overflow; none of our types is u16, u8 fits.
};
// A NaN stays, whichever operand it is: the result does not depend on the order of ranks.
struct Min {
  template <class T>
  static T apply(T a, T b) noexcept {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) noexcept {
    return ((a < b) | (b != b)) ? b : a;
  }
};

template <class T>
inline void ask_for(const Unaligned<T>* from, Size count) noexcept {
  for (Size i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(from + i, 0, 2);
}

template <class T, class Op>
inline void reduce_run(Unaligned<T>* to, const Unaligned<T>* a, const Unaligned<T>* b, Size count) noexcept {
  // The destination may be the same as an operand, which vectorises all the same once the compiler is told
  // that no element depends on an earlier one.
#if defined(__clang__)
#pragma clang loop vectorize(enable)
#else
#pragma GCC ivdep
#endif
  for (Size i = 0; i < count; ++i) to[i] = Op::template apply<T>(a[i], b[i]);
}

template <class T, class Run>
inline void reduce_two(Unaligned<T>* to, const Unaligned<T>* a, const Unaligned<T>* b, Size count,
                       Run run) noexcept {
  // One operand usually lies in another core's cache. The hardware prefetcher stops at every page; asking for
  // lines 2 KiB ahead of it, into the second level, saves 8 % of the time that reading them takes. Never
  // behind the end: those lines may be the ones that the other core writes just now.
  constexpr Size kRun = 256 / sizeof(T);
  constexpr Size kAhead = 2048 / sizeof(T);
  const Size first = count < kAhead ? count : kAhead;
  ask_for<T>(a, first);
  ask_for<T>(b, first);
  Size done = 0;
  for (; done + kAhead + kRun <= count; done += kRun) {
    ask_for<T>(a + done + kAhead, kRun);
    ask_for<T>(b + done + kAhead, kRun);
    run(to + done, a + done, b + done, kRun);
  }
  run(to + done, a + done, b + done, count - done);
}

template <class T, class Op>
void reduce_plain(void* destination, const void* const* operands, Size operand_count, Size count) {
  auto* to = static_cast<Unaligned<T>*>(destination);
  const auto operand = [&](Size index) { return static_cast<const Unaligned<T>*>(operands[index]); };
  if (operand_count == 2) {
    reduce_two<T>(to, operand(0), operand(1), count,
                  [](Unaligned<T>* out, const Unaligned<T>* a, const Unaligned<T>* b, Size part) {
                    reduce_run<T, Op>(out, a, b, part);
                  });
    return;
  }
  // One pass over all operands. The total stays in the first-level cache, and apart from the destination,
  // which may be an operand that is still to come.
  constexpr Size kRun = 2048 / sizeof(T);
  T total[kRun];
  for (Size at = 0; at < count; at += kRun) {
    const Size part = count - at < kRun ? count - at : kRun;
    reduce_run<T, Op>(total, operand(0) + at, operand(1) + at, part);
    for (Size index = 2; index + 1 < operand_count; ++index)
      reduce_run<T, Op>(total, total, operand(index) + at, part);
    reduce_run<T, Op>(to + at, total, operand(operand_count - 1) + at, part);
  }
}

// to = combine(place) for every register of 16-bit floats; `place` is where it begins. What is left at the
// end is less than a register: `load` and `store` go through one on the stack for it.
template <class Codec>
struct Coded {
  typedef Unaligned<std::uint16_t> Element;

  static Pair load_part(const Element* from, Size count) noexcept {
    std::uint16_t whole[kPair] = {};
    __builtin_memcpy(whole, from, count * sizeof(*from));
    return Codec::load(whole);
  }
  static void store_part(Element* to, Pair values, Size count) noexcept {
    std::uint16_t whole[kPair];
    Codec::store(whole, values);
    __builtin_memcpy(to, whole, count * sizeof(*to));
  }

  // Combine: (loader, place) -> Pair, where loader(pointer) reads a register or what is left of it.
  template <class Combine>
  __attribute__((always_inline)) static inline void run(Element* to, Size count, Combine combine) noexcept {
    const auto load = [](const Element* from) { return Codec::load(from); };
    Size at = 0;
    for (; at + kPair <= count; at += kPair) Codec::store(to + at, combine(load, at));
    const Size left = count - at;
    if (left == 0) return;
    store_part(to + at, combine([left](const Element* from) { return load_part(from, left); }, at), left);
  }
};

template <class Op>
inline Pair combine_pairs(Pair a, Pair b) noexcept {
  return {Op::template apply<Floats>(a.first, b.first), Op::template apply<Floats>(a.second, b.second)};
}

// What becomes of a combination before it is rounded.
struct Keep {
  Pair operator()(Pair values) const noexcept { return values; }
};
struct Divide {
  float by;
  Pair operator()(Pair values) const noexcept { return {values.first / by, values.second / by}; }
};

template <class Codec, class Op, class Finish>
void combine_coded(void* destination, const void* const* operands, Size operand_count, Size count,
                   Finish finish) {
  typedef Unaligned<std::uint16_t> Element;
  auto* to = static_cast<Element*>(destination);
  const auto operand = [&](Size index) { return static_cast<const Element*>(operands[index]); };
  if (operand_count == 2) {
    reduce_two<std::uint16_t>(to, operand(0), operand(1), count,
                              [finish](Element* out, const Element* a, const Element* b, Size part) {
                                Coded<Codec>::run(out, part, [a, b, finish](auto load, Size at) {
                                  return finish(combine_pairs<Op>(load(a + at), load(b + at)));
                                });
                              });
    return;
  }
  Coded<Codec>::run(to, count, [&](auto load, Size at) {
    Pair total = load(operand(0) + at);
    for (Size index = 1; index < operand_count; ++index)
      total = combine_pairs<Op>(total, load(operand(index) + at));
    return finish(total);
  });
}

template <class Codec, class Op>
void reduce_coded(void* destination, const void* const* operands, Size operand_count, Size count) {
  combine_coded<Codec, Op>(destination, operands, operand_count, count, Keep{});
}

template <class Codec>
void average_coded(void* destination, const void* const* operands, Size operand_count, Size count,
                   std::uint64_t divisor) {
  combine_coded<Codec, Sum>(destination, operands, operand_count, count, Divide{static_cast<float>(divisor)});
}

template <class T>
void scale_plain(void* destination, Size count, std::uint64_t divisor) {
  auto* to = static_cast<Unaligned<T>*>(destination);
  const T by = static_cast<T>(divisor);
  for (Size i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] / by);
}

// Divides in 64 bits: a divisor of 128 ranks or more does not fit a signed byte.
template <class T>
void scale_narrow(void* destination, Size count, std::uint64_t divisor) {
  auto* to = static_cast<Unaligned<T>*>(destination);
  for (Size i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<std::int64_t>(to[i]) / static_cast<std::int64_t>(divisor));
}

template <class Codec>
void scale_coded(void* destination, Size count, std::uint64_t divisor) {
  auto* to = static_cast<Unaligned<std::uint16_t>*>(destination);
  const float by = static_cast<float>(divisor);
  Coded<Codec>::run(to, count, [to, by](auto load, Size at) { return Divide{by}(load(to + at)); });
}

template <class Wrapping, ScaleKernel kScale>
void average_plain(void* destination, const void* const* operands, Size operand_count, Size count,
                   std::uint64_t divisor) {
  reduce_plain<Wrapping, Sum>(destination, operands, operand_count, count);
  kScale(destination, count, divisor);
}

template <class T>
void multiply_plain(void* destination, const void* source, Size count, std::uint64_t factor) {
  auto* to = static_cast<Unaligned<T>*>(destination);
  const auto* from = static_cast<const Unaligned<T>*>(source);
  T by;
  __builtin_memcpy(&by, &factor, sizeof(by));
  for (Size i = 0; i < count; ++i) to[i] = Prod::apply<T>(from[i], by);
}

template <class Codec>
void multiply_coded(void* destination, const void* source, Size count, std::uint64_t factor) {
  auto* to = static_cast<Unaligned<std::uint16_t>*>(destination);
  const auto* from = static_cast<const Unaligned<std::uint16_t>*>(source);
  float by;
  __builtin_memcpy(&by, &factor, sizeof(by));
  if (by != by) by = __builtin_nanf("");  // without a payload: see BFloatCodec::round
  Coded<Codec>::run(to, count, [from, by](auto load, Size at) {
    const Pair values = load(from + at);
    return Pair{values.first * by, values.second * by};
  });
}

// One line in stores as wide as they can be: a line that is put together from narrow ones takes a third
// longer.
#if defined(__SSE2__)
inline void stream_line(void* to, const void* from) noexcept {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  const auto* source = static_cast<const __m256i*>(from);
  const __m256i low = _mm256_loadu_si256(source);
  const __m256i high = _mm256_loadu_si256(source + 1);
  _mm256_stream_si256(static_cast<__m256i*>(to), low);
  _mm256_stream_si256(static_cast<__m256i*>(to) + 1, high);
#else
  const auto* source = static_cast<const __m128i*>(from);
  auto* line = static_cast<__m128i*>(to);
  const __m128i parts[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1), _mm_loadu_si128(source + 2),
                           _mm_loadu_si128(source + 3)};
  for (int i = 0; i < 4; ++i) _mm_stream_si128(line + i, parts[i]);
#endif
}
#endif

void stream(void* destination, const void* source, Size bytes) {
  auto* to = static_cast<unsigned char*>(destination);
  const auto* from = static_cast<const unsigned char*>(source);
  Size at = 0;
#if defined(__SSE2__)
  constexpr Size kLine = 64;
  const Size to_line = (kLine - reinterpret_cast<Size>(to) % kLine) % kLine;
  at = to_line < bytes ? to_line : bytes;
  __builtin_memcpy(to, from, at);
  for (; at + kLine <= bytes; at += kLine) stream_line(to + at, from + at);
#endif
  __builtin_memcpy(to + at, from + at, bytes - at);
}

// Sums and products of signed types run on the unsigned type of their width.
#define TUGLINE_PLAIN(Type, Wrapping)                                                   \
  {                                                                                     \
    reduce_plain<Wrapping, Sum>, reduce_plain<Wrapping, Prod>, reduce_plain<Type, Min>, \
        reduce_plain<Type, Max>                                                         \
  }
#define TUGLINE_CODED(Codec) \
  { reduce_coded<Codec, Sum>, reduce_coded<Codec, Prod>, reduce_coded<Codec, Min>, reduce_coded<Codec, Max> }

}  // namespace

extern const KernelTable TUGLINE_VARIANT;
const KernelTable TUGLINE_VARIANT = {
    TUGLINE_VARIANT_NAME,
    {
        TUGLINE_PLAIN(std::int8_t, std::uint8_t),
        TUGLINE_PLAIN(std::uint8_t, std::uint8_t),
        TUGLINE_PLAIN(std::int32_t, std::uint32_t),
        TUGLINE_PLAIN(std::uint32_t, std::uint32_t),
        TUGLINE_PLAIN(std::int64_t, std::uint64_t),
        TUGLINE_PLAIN(std::uint64_t, std::uint64_t),
        TUGLINE_CODED(HalfCodec),
        TUGLINE_CODED(BFloatCodec),
        TUGLINE_PLAIN(float, float),
        TUGLINE_PLAIN(double, double),
    },
    {average_plain<std::uint8_t, scale_narrow<std::int8_t>>,
     average_plain<std::uint8_t, scale_narrow<std::uint8_t>>,
     average_plain<std::uint32_t, scale_narrow<std::int32_t>>,
     average_plain<std::uint32_t, scale_narrow<std::uint32_t>>,
     average_plain<std::uint64_t, scale_narrow<std::int64_t>>,
     average_plain<std::uint64_t, scale_plain<std::uint64_t>>, average_coded<HalfCodec>,
     average_coded<BFloatCodec>, average_plain<float, scale_plain<float>>,
     average_plain<double, scale_plain<double>>},
    {scale_narrow<std::int8_t>, scale_narrow<std::uint8_t>, scale_narrow<std::int32_t>,
     scale_narrow<std::uint32_t>, scale_narrow<std::int64_t>, scale_plain<std::uint64_t>,
     scale_coded<HalfCodec>, scale_coded<BFloatCodec>, scale_plain<float>, scale_plain<double>},
    {multiply_plain<std::uint8_t>, multiply_plain<std::uint8_t>, multiply_plain<std::uint32_t>,
     multiply_plain<std::uint32_t>, multiply_plain<std::uint64_t>, multiply_plain<std::uint64_t>,
     multiply_coded<HalfCodec>, multiply_coded<BFloatCodec>, multiply_plain<float>, multiply_plain<double>},
    stream,
};

}  // namespace tugline::comm
