"""Dead letters sent back, each of them once: `headwater queue redrive` and the gateway do it alike. It blocks."""
