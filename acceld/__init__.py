"""acceld makes accelerator kernels faster."""
