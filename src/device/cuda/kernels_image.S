/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels as bytes; TUGLINE_KERNELS_IMAGE is the file. */
        .section .rodata
        .balign 64
        .global tugline_device_kernels
        .hidden tugline_device_kernels
tugline_device_kernels:
        .incbin TUGLINE_KERNELS_IMAGE
        .section .note.GNU-stack,"",@progbits
