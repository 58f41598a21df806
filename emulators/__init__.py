"""Run programs that were written for other processors on the CPU, and watch what they do."""
