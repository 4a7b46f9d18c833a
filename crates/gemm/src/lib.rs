//! Persistent dense GEMM for NVIDIA Hopper: devices, plans, caches, heuristics.
