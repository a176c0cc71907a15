"""The entry point that SGLang calls while it looks for its platform."""


def activate() -> str:
    """The platform's class; SGLang imports it once it has chosen it."""
    return "reference_cpu.ReferenceCpuPlatform"
