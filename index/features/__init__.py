"""Feature maps whose inner products estimate kernels: Fourier and Nyström."""
