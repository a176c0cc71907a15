"""Plain torch on a CPU as an out-of-tree platform of SGLang, so that its real loop runs anywhere.

On such a platform every fused operation falls to its torch form, and the KV pools use torch.
"""

import platform

import psutil
import torch
from sglang.srt.platforms.device_mixin import DeviceCapability, PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class ReferenceCpuPlatform(SRTPlatform):  # type: ignore[misc] # SGLang ships no types
    """What SGLang asks a device for, answered for one CPU."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        """Attention in plain torch."""
        return "torch_native"

    def get_torch_distributed_backend_str(self) -> str:
        """What stages talk over."""
        return "gloo"

    def get_dispatch_key_name(self) -> str:
        """Each layer's torch form."""
        return "native"

    def get_device(self, device_id: int = 0) -> torch.device:
        """There is one."""
        del device_id
        return torch.device("cpu")

    def set_device(self, device: torch.device) -> None:
        """There is nothing to choose."""

    def get_device_name(self, device_id: int = 0) -> str:
        """For logs."""
        del device_id
        return platform.processor() or "cpu"

    def get_device_uuid(self, device_id: int = 0) -> str:
        """Any text that is the same each time."""
        return f"cpu-{device_id}"

    def get_device_capability(self, device_id: int = 0) -> DeviceCapability | None:
        """None of CUDA's."""
        del device_id
        return None

    def get_device_total_memory(self, device_id: int = 0) -> int:
        """The machine's."""
        del device_id
        return int(psutil.virtual_memory().total)

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        """This process's."""
        del device
        return float(psutil.Process().memory_info().rss)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        """Free and total."""
        del device_id
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    def is_pin_memory_available(self, device: object = None) -> bool:
        """Nothing is copied to another device."""
        del device
        return False

    def get_torch_profiler_activity_str(self) -> str:
        """For profiles."""
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        """For profiles."""
        return torch.profiler.ProfilerActivity.CPU
