"""Entry point ``sglang.srt.plugins``: runs in every process of SGLang."""

from __future__ import annotations


def load() -> None:
    """Make the hogwild backends known and put the patches in place.

    Nothing changes for a server that does not ask for them by its flags."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.mem_cache.registry import register_radix_cache_backend

    from runtime_patch import messages, patches
    from runtime_patch.debug import fault_injection
    from runtime_patch.server_args import NAME, register_resolution

    if NAME not in choices.ATTENTION_BACKEND_CHOICES:
        choices.add_attention_backend_choices([NAME])

    @register_attention_backend(NAME)
    def make_attention_backend(runner):
        from runtime_patch.attention.backend import HogwildAttentionBackend

        return HogwildAttentionBackend(runner)

    def make_tree(context):
        from runtime_patch.scheduler.radix_cache import HogwildRadixCache

        return HogwildRadixCache(context.params)

    register_radix_cache_backend(NAME, make_tree)
    messages.register()
    register_resolution()
    patches.apply()
    fault_injection.plant()
