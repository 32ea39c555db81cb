"""Choose the models of a role, and the model that answers a request."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from acceld.config import Config, RoleConfig, no_model, settings_file
from acceld.errors import ConfigError, did_you_mean
from acceld.llm.client import Role
from acceld.llm.settings import PROVIDERS, api_of


@dataclass(frozen=True, slots=True)
class RoleModels:
    """The models of one role with their weights, and the limits on their answers."""

    models: tuple[tuple[str, float], ...]
    max_output_tokens: int = 16_384
    temperature: float | None = None
    batch: bool = False
    """True if the role uses the provider's batch mode."""
    by_gain: bool = False
    """True if models are drawn not by weight alone, but also by the gain that their answers bring per dollar."""

    def __post_init__(self) -> None:
        if not self.models or any(weight <= 0 for _, weight in self.models):
            raise ValueError("a role needs at least one model, and every weight must be greater than 0")

    def order(self, seed: int, shares: Mapping[str, float] | None = None) -> tuple[str, ...]:
        """Return the role's models in the order in which to ask them: first a model that is drawn from ``seed`` by
        ``shares`` (default: the weights), then the other models as substitutes.
        """
        names = [name for name, _ in self.models]
        weights = [weight if shares is None else shares[name] for name, weight in self.models]
        first = random.Random(seed).choices(names, weights)[0]
        return tuple(dict.fromkeys((first, *names)))


@dataclass(frozen=True, slots=True)
class RoleTable:
    """The models of every role. For a role without models of its own, the models of another role are used."""

    planner: RoleModels
    executor: RoleModels
    fixer: RoleModels
    summarizer: RoleModels
    warmed: frozenset[str] = field(default_factory=frozenset)
    """Models whose provider caches prompts. A first call fills the cache; other calls with the same prompt wait for
    that call.
    """

    def of(self, role: Role) -> RoleModels:
        """Return the models of one role."""
        models: RoleModels = getattr(self, role)
        return models

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models that some role uses."""
        roles = (self.planner, self.executor, self.fixer, self.summarizer)
        return tuple(dict.fromkeys(name for role in roles for name, _ in role.models))

    @property
    def all_warmed(self) -> bool:
        """Return True if the providers of all models in the table cache prompts. The first call to such a model fills
        the cache, so it pays to wait for that call.
        """
        return self.warmed.issuperset(self.names)

    @property
    def batched(self) -> tuple[str, ...]:
        """Return the names of all models that some role calls in batch mode."""
        roles = (self.planner, self.executor, self.fixer, self.summarizer)
        return tuple(dict.fromkeys(name for role in roles if role.batch for name, _ in role.models))

    @classmethod
    def from_config(cls, config: Config) -> RoleTable:
        """Return the table that the sections ``[llm]`` and ``[models]`` describe.

        Raise ConfigError if a role names no model, or a model that is not configured.
        """
        llm = config.llm
        planner = _models("planner", llm.planner, config)
        executor = _models("executor", llm.executor, config)
        if planner is None or executor is None:
            missing = "planner" if planner is None else "executor"
            raise ConfigError(
                f"[llm.{missing}] in {settings_file()} names no model" if config.models else no_model(),
                hint=f'add models = ["NAME"] to the section [llm.{missing}], and a section [models.NAME] that describes the model; '
                "docs/models.md has examples",
            )
        return cls(
            planner,
            executor,
            _models("fixer", llm.fixer, config) or executor,
            _models("summarizer", llm.summarizer, config) or planner,
            frozenset(
                name
                for name, model in config.models.items()
                if model.provider in PROVIDERS and api_of(model) == "messages"
            ),
        )

    @classmethod
    def single(cls, model: str) -> RoleTable:
        """Return a table in which one model fills every role."""
        models = RoleModels(((model, 1.0),))
        return cls(models, models, models, models)


def _models(role: str, config: RoleConfig, whole: Config) -> RoleModels | None:
    found: list[tuple[str, float]] = []
    for entry in config.models:
        name, star, weight = entry.partition("*")
        name = name.strip()
        if name not in whole.models:
            raise ConfigError(
                f"[llm.{role}] in {settings_file()} names the model {name!r}, which has no section [models.{name}]",
                hint=did_you_mean(name, whole.models) or f"add a section [models.{name}] there",
            )
        if config.batch and whole.models[name].service_tier:
            raise ConfigError(
                f"[llm.{role}] batch = true can not be used with the model {name!r}: the model has a service_tier, and a batch has a price of its own",
                hint="Remove batch or service_tier, or add a section of another name for the same model without service_tier.",
            )
        try:
            found.append((name, float(weight) if star else 1.0))
        except ValueError:
            raise ConfigError(
                f"[llm.{role}] {entry!r}: the weight must be a number", hint="Write it as in 'name*3'."
            ) from None
    if not found:
        return None
    try:
        return RoleModels(
            tuple(found), config.max_output_tokens, config.temperature, config.batch, config.choice == "gain"
        )
    except ValueError as error:
        raise ConfigError(f"[llm.{role}] {error}") from None
