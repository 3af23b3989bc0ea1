"""The command line of an SGLang server that has the patch switched on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hogwild_sgl.errors import UserError

BACKEND_FLAGS = ("--attention-backend", "--radix-cache-backend")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def value_of(args: Sequence[str], flag: str) -> str | None:
    """The value given to ``flag`` as ``--flag value`` or ``--flag=value``, the last one."""
    found = None
    for index, arg in enumerate(args):
        if arg == flag and index + 1 < len(args):
            found = args[index + 1]
        elif arg.startswith(f"{flag}="):
            found = arg.removeprefix(f"{flag}=")
    return found


def is_given(args: Sequence[str], flag: str) -> bool:
    return any(arg == flag or arg.startswith(f"{flag}=") for arg in args)


def launch_command(
    model: str, host: str, port: int, args: Sequence[str], *, patched: bool = True
) -> list[str]:
    """``python -m sglang.launch_server`` for ``model`` with ``args`` passed through.

    patched: add the two hogwild backends.
    Raises ``UserError`` if ``args`` contradict them.
    """
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", model]
    command += ["--host", host, "--port", str(port)]
    if patched:
        for flag in BACKEND_FLAGS:
            if value_of(args, flag) not in (None, "hogwild"):
                raise UserError(
                    f"{flag} {value_of(args, flag)} would leave the hogwild patch out.",
                    f"Leave {flag} away, or start such a server with "
                    "`python -m sglang.launch_server`.",
                )
            if not is_given(args, flag):
                command += [flag, "hogwild"]
    return [*command, *args]


def check_model(model: str, args: Sequence[str] = ()) -> None:
    """Refuse a model folder that cannot work, before half a minute goes by.

    A name such as ``Qwen/Qwen3-8B`` is not a folder and is left to SGLang, which asks the
    Hugging Face hub for it.
    """
    folder = Path(model).expanduser()
    if not folder.exists():
        if model.startswith(("/", ".", "~")) or model.count("/") != 1:
            raise UserError(
                f"There is no model folder {model}.",
                "Give a folder in Hugging Face format (config.json, *.safetensors, tokenizer "
                "files), or a name on the hub such as Qwen/Qwen3-8B.",
            )
        return
    if folder.is_file():
        raise UserError(f"{model} is a file.", "Give the folder that holds the model.")
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{model} has no config.json, so it is not a model in Hugging Face format.",
            f"It holds: {_listing(folder)}.",
        )
    needs_tokenizer = not (
        is_given(args, "--skip-tokenizer-init") or is_given(args, "--tokenizer-path")
    )
    if needs_tokenizer and not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise UserError(
            f"{model} has no tokenizer (looked for {', '.join(_TOKENIZER_FILES)}).",
            "Add --tokenizer-path FOLDER, or --skip-tokenizer-init if you will send token ids.",
        )


def _listing(folder: Path, most: int = 6) -> str:
    names = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(names[:most]) or "nothing"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
