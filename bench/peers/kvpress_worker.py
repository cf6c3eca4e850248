#!/usr/bin/env python3
"""Compresses contexts with kvpress and compares what the model then predicts.

Runs in the virtual environment that kvpress_agreement.py makes. Reads a job
as JSON from the standard input, writes its result as JSON to the standard
output (see kvpress_agreement.py for both) and progress to the standard error.

A context is read once; every press compresses a copy of the same keys and
values, through kvpress's own hooks and methods. The tokens that follow keep
their original positions and go through the model in one pass, with a mask that
shows each of them what was kept and those before it.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

import gguf
import tokenizers
import torch
import transformers
from kvpress import (
    BasePress,
    ExpectedAttentionPress,
    ObservedAttentionPress,
    RandomPress,
    ScorerPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)

# What SnapKvPolicy looks at (src/policy/snapkv_policy.h).
SNAPKV_QUERIES = 32
SNAPKV_POOL_TOKENS = 7


def max_of_group(attentions: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """[1, heads, ...] to [1, KV heads, ...]: the highest of a group's heads."""
    n_kv_heads = keys.shape[1]
    shape = attentions.shape
    return attentions.view(shape[0], n_kv_heads, -1, *shape[2:]).amax(2)


# lkv's definitions of three statistics in kvpress's frame: weights of a KV head
# are the highest of its group, not the mean of group or layer.
class GroupMaxTova(TOVAPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return max_of_group(attentions[..., -1, :], keys)


class GroupMaxObserved(ObservedAttentionPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        sums = max_of_group(attentions, keys).sum(2)
        return sums / torch.arange(keys.shape[2], 0, -1)


@dataclasses.dataclass
class GroupMaxSnapKv(SnapKVPress):
    n_first: int = 0
    n_last: int = 0

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        weights = attentions[..., -self.window_size :, :]
        means = max_of_group(weights, keys).mean(2)
        # Pooling stays among what may leave.
        scores = torch.zeros_like(means)
        inner = slice(self.n_first, means.shape[-1] - self.n_last)
        scores[..., inner] = torch.nn.functional.max_pool1d(
            means[..., inner],
            self.kernel_size,
            stride=1,
            padding=self.kernel_size // 2,
        )
        return scores


class ScoredOnce:
    """Scores each layer once, for all the budgets of a context."""

    def __init__(self, press: ScorerPress):
        self.press = press
        self.layer = None

    def score(self, module, *args) -> torch.Tensor:
        if self.layer != module.layer_idx:
            self.layer = module.layer_idx
            self.scores = self.press.score(module, *args)
        return self.scores


@dataclasses.dataclass
class ProtectedPress(ScorerPress):
    """Another press whose first and last tokens always stay."""

    press: ScoredOnce = None
    n_first: int = 0
    n_last: int = 0

    def score(self, *args) -> torch.Tensor:
        scores = self.press.score(*args).clone()
        scores[..., : self.n_first] = torch.inf
        scores[..., scores.shape[-1] - self.n_last :] = torch.inf
        return scores


def make_presses(name: str, n_kept: list[int], job: dict) -> list:
    """Presses of one name that keep so many tokens each."""
    # Half a token more, so that rounding down yields what is asked for.
    ratios = [1 - (n + 0.5) / job["context_tokens"] for n in n_kept]
    ends = {"n_first": job["first_tokens"], "n_last": job["last_tokens"]}
    if name == "streaming":  # whose scores depend on the ratio
        return [
            ProtectedPress(
                ratio,
                ScoredOnce(StreamingLLMPress(ratio, ends["n_first"])),
                **ends,
            )
            for ratio in ratios
        ]
    snapkv = {
        "window_size": SNAPKV_QUERIES,
        "kernel_size": SNAPKV_POOL_TOKENS,
    }
    press = {
        "observed": ObservedAttentionPress,
        "observed, max": GroupMaxObserved,
        "snapkv": lambda: SnapKVPress(**snapkv),
        "snapkv, max": lambda: GroupMaxSnapKv(**snapkv, **ends),
        "tova": TOVAPress,
        "tova, max": GroupMaxTova,
        "expected_attention": lambda: ExpectedAttentionPress(
            n_sink=ends["n_first"]
        ),
        # Without a seed of its own: that would draw the same in each layer.
        "random": RandomPress,
    }[name]()
    scored = ScoredOnce(press)
    return [ProtectedPress(ratio, scored, **ends) for ratio in ratios]


class AllPresses(BasePress):
    """Lets many presses compress copies of the keys and values of one pass."""

    def __init__(self, presses: list[ScorerPress]):
        self.presses = presses
        self.caches = [transformers.DynamicCache() for _ in presses]

    def compress(self, module, hidden_states, keys, values, *args):
        for press, cache in zip(self.presses, self.caches):
            kept = press.compress(module, hidden_states, keys, values, *args)
            cache.update(*kept, module.layer_idx)
        return keys, values


def load_tokenizer(model: pathlib.Path) -> tokenizers.Tokenizer:
    """The byte-level BPE of a GGUF file whose digits stand alone."""
    fields = gguf.GGUFReader(model).fields
    kind = fields["tokenizer.ggml.pre"].contents()
    if kind != "smollm":
        sys.exit(f"{model}: has the tokenizer {kind}; smollm is what is known")
    vocab = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: i for i, token in enumerate(vocab)},
            [tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


def load_model(path: pathlib.Path) -> torch.nn.Module:
    # Eager: the only attention that shows its weights to presses.
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()


def following_log_probs(
    model, cache: transformers.DynamicCache, tokens: torch.Tensor, pos: int
) -> torch.Tensor:
    """Log-probabilities behind each token, [n, vocabulary]; uses up `cache`."""
    n = len(tokens)
    n_kept = cache.get_seq_length()
    mask = torch.zeros(1, 1, n, n_kept + n)
    mask[..., n_kept:] = torch.full((n, n), -torch.inf).triu(1)
    positions = torch.arange(pos, pos + n)
    logits = model(
        input_ids=tokens[None],
        past_key_values=cache,
        attention_mask=mask,
        position_ids=positions[None],
        cache_position=positions,
    ).logits[0]
    return logits.double().log_softmax(-1)


def fidelity(full: torch.Tensor, other: torch.Tensor) -> dict:
    kl = (full.exp() * (full - other)).sum(-1)
    same = full.argmax(-1) == other.argmax(-1)
    return {
        "kl": kl.mean().item(),
        "top1": same.double().mean().item(),
    }


class WindowRun:
    """One window: a context, the tokens that follow it, and one more."""

    def __init__(self, model, tokens: list[int], n_context: int):
        self.model = model
        self.tokens = torch.tensor(tokens)
        self.n_context = n_context

    def read_context(self, presses: list[ScorerPress]):
        """The whole cache, and one for each press."""
        whole = transformers.DynamicCache()
        collector = AllPresses(presses)
        with collector(self.model):
            self.model(
                input_ids=self.tokens[None, : self.n_context],
                past_key_values=whole,
                logits_to_keep=1,
            )
        return whole, collector.caches

    def follow(self, cache: transformers.DynamicCache) -> torch.Tensor:
        following = self.tokens[self.n_context : -1]
        return following_log_probs(self.model, cache, following, self.n_context)

    def loss(self, log_probs: torch.Tensor) -> float:
        next_tokens = self.tokens[self.n_context + 1 :, None]
        return -log_probs.gather(1, next_tokens).mean().item()

    def check_following(self, full: torch.Tensor) -> float:
        """KL between the same predictions made in a single pass and `full`."""
        logits = self.model(
            input_ids=self.tokens[None, :-1],
            logits_to_keep=len(full),
            use_cache=False,
        ).logits[0]
        return fidelity(logits.double().log_softmax(-1), full)["kl"]


def run_window(model, tokens: list[int], kept: dict, job: dict):
    """Rows of one window; kept: tokens that stay, by press and budget."""
    window = WindowRun(model, tokens, job["context_tokens"])
    presses = [
        press
        for name, n_kept in kept.items()
        for press in make_presses(name, n_kept, job)
    ]
    rows = [
        {"press": name, "budget": budget, "kept": n}
        for name, n_kept in kept.items()
        for budget, n in enumerate(n_kept)
    ]
    whole, caches = window.read_context(presses)
    full = window.follow(whole)
    for row, cache in zip(rows, caches):
        if cache.get_seq_length() != row["kept"]:
            sys.exit(
                f"{row['press']} kept {cache.get_seq_length()} tokens, not"
                f" {row['kept']}"
            )
        row.update(fidelity(full, window.follow(cache)))
    return window, full, rows


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    path = pathlib.Path(job["model"])
    tokenizer = load_tokenizer(path)
    model = load_model(path)
    n_window = job["context_tokens"] + job["forced_tokens"] + 1
    texts = {}
    windows = []
    single_pass_kl = None
    for place in job["windows"]:
        name = place["text"]
        if name not in texts:
            text = pathlib.Path(name).read_bytes().decode(errors="replace")
            texts[name] = tokenizer.encode(text).ids
        begin = place["begin"]
        tokens = texts[name][begin : begin + n_window]
        if len(tokens) < n_window:
            sys.exit(f"{name}: too short for a window at {begin}")
        window, full, rows = run_window(model, tokens, place["kept"], job)
        if single_pass_kl is None:
            single_pass_kl = window.check_following(full)
        windows.append({"full_nll": window.loss(full), "rows": rows})
        print(f"{name} at {begin}: done", file=sys.stderr, flush=True)
    json.dump(
        {
            "tokens": {name: len(ids) for name, ids in texts.items()},
            "single_pass_kl": single_pass_kl,
            "windows": windows,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
