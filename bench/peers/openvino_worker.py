#!/usr/bin/env python3
"""Measures one prompt and the decoding behind it with OpenVINO GenAI.

Runs in the virtual environment that compare.py makes. Prints one JSON line:
tokens per second of `prefill` (prompt / time to the first token) and `decode`
(from the first token to the last, which includes a greedy choice of tokens).
"""

import argparse
import json

import numpy
import openvino
import openvino_genai


def pseudo_random_ids(n: int, first: int) -> openvino.Tensor:
    """Ids that every vocabulary of a language model has, [1, n]."""
    ids = (numpy.arange(n, dtype=numpy.int64) * 7919 + first) % 20000 + 100
    return openvino.Tensor(ids.reshape(1, n))


def generation(n_tokens: int) -> openvino_genai.GenerationConfig:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = n_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def open_pipeline(args: argparse.Namespace) -> openvino_genai.LLMPipeline:
    properties = {
        "INFERENCE_NUM_THREADS": args.threads,
        "KV_CACHE_PRECISION": args.kv_type,
        "ATTENTION_BACKEND": args.backend,
    }
    if args.backend == "PA":
        scheduler = openvino_genai.SchedulerConfig()
        # The whole prompt in one step: its fastest way to read one.
        scheduler.max_num_batched_tokens = args.prompt
        scheduler.enable_prefix_caching = False
        if args.cache_tokens:
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = (
                openvino_genai.CacheEvictionConfig(
                    start_size=args.start_tokens,
                    recent_size=args.recent_tokens,
                    max_cache_size=args.cache_tokens,
                    aggregation_mode=openvino_genai.AggregationMode.NORM_SUM,
                )
            )
        properties["scheduler_config"] = scheduler
    return openvino_genai.LLMPipeline(args.model, "CPU", **properties)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt", type=int, required=True)
    parser.add_argument("--gen", type=int, required=True)
    parser.add_argument("--backend", choices=["PA", "SDPA"], required=True)
    parser.add_argument("--kv-type", choices=["f16", "u8"], required=True)
    parser.add_argument("--start-tokens", type=int)
    parser.add_argument("--recent-tokens", type=int)
    parser.add_argument("--cache-tokens", type=int, help="evict beyond these")
    args = parser.parse_args()

    pipeline = open_pipeline(args)
    # The same work once before warms threads, code and memory up.
    pipeline.generate(pseudo_random_ids(args.prompt, 1), generation(2))
    # The first token belongs to the prefill.
    result = pipeline.generate(
        pseudo_random_ids(args.prompt, 5), generation(args.gen + 1)
    )
    metrics = result.perf_metrics
    print(
        json.dumps(
            {
                "prefill": 1000 * args.prompt / metrics.get_ttft().mean,
                "decode": 1000 / metrics.get_tpot().mean,
            }
        )
    )


if __name__ == "__main__":
    main()
