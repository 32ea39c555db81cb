"""Real trainers call the reward functions. Each test skips where its library is not installed."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from acceld import reward
from acceld.report.datasets import NO_CODE
from acceld.reward import Scorer
from tests.standin_neuron.machine import KERNEL, NARROW, small_silu


def byte_tokenizer(transformers: Any) -> Any:
    """Make a tokenizer of single bytes, so that nothing is downloaded."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {one: number for number, one in enumerate([*alphabet, "<pad>", "<end>"])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>")


@pytest.mark.filterwarnings("ignore")  # of the libraries, about themselves
def test_a_step_of_trls_grpo_learns_from_the_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 40,000 random weights; the rollouts are written down here, everything else is the trainer's."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trl, torch = pytest.importorskip("trl"), pytest.importorskip("torch")
    transformers, datasets = pytest.importorskip("transformers"), pytest.importorskip("datasets")
    tokenizer = byte_tokenizer(transformers)
    shape = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(shape)
    before = [weights.clone() for weights in model.parameters()]
    kernels = [f"```python\n{KERNEL}```", f"```python\n{NARROW}```", "no code", f"```python\n{KERNEL[:40]}```"]

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        answers = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in kernels]
        return {
            "prompt_ids": [tokenizer(prompt).input_ids for prompt in prompts],
            "completion_ids": answers,
            "logprobs": [[-1.0] * len(answer) for answer in answers],
        }

    workload = str(small_silu(tmp_path, NARROW))
    rows = datasets.Dataset.from_list([{"prompt": "A faster silu, please.", "workload": workload}])
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=4, num_generations=4, use_cpu=True,
        report_to=[], logging_steps=1, save_strategy="no", max_completion_length=4096, bf16=False, learning_rate=1e-2,
    )  # fmt: skip
    with Scorer(seed=1, slots=1) as scorer:
        expected = [one.reward for one in scorer.score(kernels, [workload] * 4)]
        trainer = trl.GRPOTrainer(
            model, reward_funcs=scorer, args=settings, train_dataset=rows, processing_class=tokenizer,
            rollout_func=rollouts,
        )  # fmt: skip
        trainer.train()
    (logged,) = [row for row in trainer.state.log_history if "reward" in row]
    assert expected[0] is not None and expected[0] > 0 and expected[1:3] == [0.0, NO_CODE]
    known = [one for one in expected if one is not None]
    assert logged["rewards/acceld_reward/mean"] == pytest.approx(math.fsum(known) / len(known), abs=1e-6)
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore")
def test_verls_managers_load_the_functions_and_reward_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's manager asks for each answer from a thread of its own, the other one for whole batches."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    rewards = pytest.importorskip("verl.trainer.ppo.reward")
    omegaconf, numpy, torch = (pytest.importorskip(name) for name in ("omegaconf", "numpy", "torch"))
    single = pytest.importorskip("verl.experimental.reward_loop.reward_manager.naive").NaiveRewardManager
    batches = pytest.importorskip("verl.workers.reward_manager.batch").BatchRewardManager
    protocol = pytest.importorskip("verl").DataProto
    tokenizer = byte_tokenizer(pytest.importorskip("transformers"))
    workload = f"acceld/{small_silu(tmp_path, NARROW)}"
    answers = [f"```python\n{KERNEL}```", f"```python\n{NARROW}```", "no code"]
    tokens = [tokenizer(text).input_ids for text in answers]
    longest = max(map(len, tokens))
    responses = torch.tensor([[*one, *[tokenizer.pad_token_id] * (longest - len(one))] for one in tokens])
    prompts = torch.zeros((3, 2), dtype=torch.long)
    data = protocol.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.cat([prompts + 1, (responses != tokenizer.pad_token_id).long()], dim=1),
        },
        non_tensors={
            "data_source": numpy.array([workload] * 3, dtype=object),
            "reward_model": numpy.array([{"ground_truth": ""}] * 3, dtype=object),
            "extra_info": numpy.array([{} for _ in range(3)], dtype=object),
        },
    )

    def configured(name: str) -> Any:
        function = {"path": "pkg://acceld.reward", "name": name, "reward_kwargs": {}}
        return omegaconf.OmegaConf.create({"reward": {"custom_reward_function": function}})

    async def one_by_one() -> list[float]:
        config = configured("compute_score")
        monkeypatch.setattr(single, "_class_initialized", True, raising=False)
        manager = single(config, tokenizer, rewards.get_custom_reward_fn(config))
        found = await asyncio.gather(*(manager.run_single(data[number : number + 1]) for number in range(3)))
        return [one["reward_score"] for one in found]

    with monkeypatch.context() as patched:
        patched.setattr(reward, "_shared", {})
        found = asyncio.run(one_by_one())
        assert found[0] > 0 and found[1:] == [0.0, NO_CODE]
        manager = batches(tokenizer, 0, rewards.get_custom_reward_fn(configured("compute_scores")))
        per_token = manager(data)
        assert per_token.sum(dim=1).tolist() == pytest.approx(found)
        assert [int(row.nonzero()[0]) for row in per_token if row.any()] == [len(tokens[0]) - 1, len(tokens[2]) - 1]
        reward._shared["all"].close()


def test_threads_share_one_scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "_shared", {})

    async def scorers() -> set[int]:
        return set(await asyncio.gather(*(asyncio.to_thread(lambda: id(reward._scorer())) for _ in range(8))))

    assert len(asyncio.run(scorers())) == 1
    reward._shared["all"].close()
