/*
 * The kernel of device memory: copies a list of small pieces, one block of threads a piece, in one launch. Sources,
 * destinations and the list may be device memory or pinned host memory. contrib/ci/cuda-kernel makes
 * device/cuda_kernel.h of it.
 */
#define PIECE_THREADS 128

struct piece { /* kvcl_piece_t */
    unsigned long long dst;
    unsigned long long src;
    unsigned long long len;
};

typedef unsigned int vec4 __attribute__((ext_vector_type(4)));

template <typename word>
static __attribute__((device)) inline void copy(const piece &p, unsigned me)
{
    word       *dst = (word *)p.dst;
    const word *src = (const word *)p.src;
    const unsigned long long n = p.len / sizeof(word);

    for (unsigned long long i = me; i < n; i += PIECE_THREADS) {
        dst[i] = src[i];
    }
}

extern "C" __attribute__((global)) void kvcl_copy_pieces(const piece *list)
{
    const piece    p  = list[__nvvm_read_ptx_sreg_ctaid_x()];
    const unsigned me = __nvvm_read_ptx_sreg_tid_x();
    const unsigned long long bits = p.dst | p.src | p.len;

    if ((bits & 15) == 0) {
        copy<vec4>(p, me);
    } else if ((bits & 3) == 0) {
        copy<unsigned int>(p, me);
    } else {
        copy<unsigned char>(p, me);
    }
}
