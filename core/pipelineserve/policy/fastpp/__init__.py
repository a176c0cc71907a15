"""FastPP's control laws as published and as released, to be compared with; not for products.

From Hwang and Ahn, "Revisiting Pipeline Parallelism for LLM Serving" (OSDI 2026). Defaults are the
constants of the released code; where the paper says otherwise, its variant is an option. What would
crash or hang a server is left out: a chunk never exceeds the engine's buffers.
"""
