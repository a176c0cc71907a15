"""One stage's share of a transformers model: its layers, and embedding or head at the ends."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from pipelineserve.errors import ModelUnavailableError
from pipelineserve.scheduler.messages import BlockCopy
from pipelineserve_engine.attention import (
    PAGED_ATTENTION,
    PackedContext,
    PagedKv,
    register,
)
from pipelineserve_engine.head import Head
from pipelineserve_engine.kv_cache import HostPoolShape, KvCache
from pipelineserve_engine.model_config import SUPPORTED_ARCHITECTURES, load_config, shape_of
from pipelineserve_engine.weights import WeightFiles

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class StageShape:
    """Which part of the model a stage runs, and how large its KV cache and host pool are."""

    first_layer_index: int
    num_layers: int
    is_first: bool
    is_last: bool
    num_kv_positions: int
    dtype: torch.dtype
    device: torch.device
    host_pool: HostPoolShape | None = None


def preload() -> None:
    """Import the modelling code of every supported model: transformers waits until one is built."""
    for architecture in SUPPORTED_ARCHITECTURES:
        getattr(transformers, architecture)


class StageModel:
    """Layers `first_layer_index` … of the model with their KV cache.

    Built on the meta device; only the weights of this stage are ever read.

    Raises:
        ModelUnavailableError: the folder's config or weights do not do.
    """

    def __init__(self, folder: Path, shape: StageShape) -> None:
        register()
        config = load_config(folder)
        self.shape = shape
        self.hidden_size = config.hidden_size
        model = _build_on_meta(config, shape.dtype)
        decoder = model.get_submodule("model")
        last_layer_index = shape.first_layer_index + shape.num_layers
        self._layers = [
            decoder.get_submodule(f"layers.{index}")
            for index in range(shape.first_layer_index, last_layer_index)
        ]
        self._embedding = decoder.get_submodule("embed_tokens") if shape.is_first else None
        self._norm = decoder.get_submodule("norm") if shape.is_last else None
        files = WeightFiles(folder)
        self._load(files)
        self._head: Head | None = None
        if shape.is_last:
            is_tied = bool(config.tie_word_embeddings)
            self._head = self._load_head(files, model.get_submodule("lm_head"), is_tied=is_tied)
        # Its frequencies are no weights: made from the config, on a real device.
        rotary_type = type(decoder.get_submodule("rotary_emb"))
        self._rotary = rotary_type(config=config).to(shape.device)
        sizes = shape_of(config)
        self._cache = KvCache(
            num_layers=shape.num_layers,
            num_kv_heads=sizes.num_kv_heads,
            num_positions=shape.num_kv_positions,
            head_dim=sizes.head_dim,
            dtype=shape.dtype,
            device=shape.device,
            host_pool=shape.host_pool,
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of this stage's parameters."""
        ends = [part for part in (self._embedding, self._norm) if part is not None]
        parameters = [p for part in [*self._layers, *ends] for p in part.parameters()]
        own_bytes = sum(p.numel() * p.element_size() for p in parameters)
        return own_bytes + (0 if self._head is None else self._head.num_bytes)

    @property
    def kv_bytes(self) -> int:
        """Bytes that this stage's KV cache may grow to."""
        return self._cache.num_bytes

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Copy KV blocks between the cache and the host pool, in their order."""
        self._cache.copy_blocks(copies)

    def measure_copy_s(self, clock: Callable[[], float]) -> float:
        """Seconds that one KV block takes one way; before the first step only."""
        return self._cache.measure_copy_s(clock)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """First stage only: token ids [tokens] to hidden states [tokens, hidden]."""
        assert self._embedding is not None, "only the first stage embeds"  # noqa: S101 - invariant
        embedded: torch.Tensor = self._embedding(token_ids)
        return embedded

    def run_layers(
        self, hidden: torch.Tensor, positions: torch.Tensor, packed: PackedContext
    ) -> torch.Tensor:
        """Run this stage's layers.

        Args:
            hidden: [tokens, hidden].
            positions: of each token in its request, [tokens], int64.
            packed: where the tokens' contexts lie in the cache.

        Returns:
            [tokens, hidden].
        """
        states = hidden.unsqueeze(0)
        rotary = self._rotary(states, positions.unsqueeze(0))
        paged_kv = PagedKv(self._cache, self.shape.first_layer_index, packed)
        for layer in self._layers:
            states = layer(states, position_embeddings=rotary, paged_kv=paged_kv)
        return states[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Last stage only: hidden states of sampling rows [rows, hidden] to [rows, vocabulary]."""
        assert self._norm is not None  # noqa: S101 - invariant
        assert self._head is not None, "only the last stage has the head"  # noqa: S101 - invariant
        return self._head(self._norm(hidden))

    def _load(self, files: WeightFiles) -> None:
        """Give the kept modules their weights."""
        wanted: dict[str, tuple[nn.Module, str]] = {}
        for offset, layer in enumerate(self._layers):
            prefix = f"model.layers.{self.shape.first_layer_index + offset}."
            for name, _ in layer.named_parameters():
                wanted[prefix + name] = (layer, name)
        if self._embedding is not None:
            wanted[_EMBEDDING] = (self._embedding, "weight")
        if self._norm is not None:
            wanted["model.norm.weight"] = (self._norm, "weight")
        tensors = files.read(wanted, self.shape.dtype)
        for full_name, (module, name) in wanted.items():
            _assign(module, name, tensors[full_name].to(self.shape.device))

    def _load_head(self, files: WeightFiles, module: nn.Module, *, is_tied: bool) -> Head:
        """A tied head reads the embedding's weight, which it shares with this stage's if any."""
        if self._embedding is not None and is_tied:
            return Head(self._embedding.get_parameter("weight"), is_shared=True)
        source = _EMBEDDING if is_tied else _HEAD
        weight = files.read([source], self.shape.dtype)[source]
        _assign(module, "weight", weight.to(self.shape.device))
        return Head(module.get_parameter("weight").detach(), is_shared=False)


def _build_on_meta(config: PretrainedConfig, dtype: torch.dtype) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(
            config, attn_implementation=PAGED_ATTENTION, dtype=dtype
        )
    return model.eval()


def _assign(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Replace a parameter on the meta device by a real one."""
    *path, leaf = name.split(".")
    owner = module.get_submodule(".".join(path))
    expected = getattr(owner, leaf).shape
    if tensor.shape != expected:
        raise ModelUnavailableError(
            f"{name}: expected shape {tuple(expected)}, got {tuple(tensor.shape)}; "
            "is config.json from the same model as the safetensors files?"
        )
    setattr(owner, leaf, nn.Parameter(tensor, requires_grad=False))
