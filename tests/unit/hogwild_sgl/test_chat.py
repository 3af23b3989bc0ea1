import pytest
import sglang as sgl
from sglang.lang.chat_template import get_chat_template
from sglang.lang.interpreter import ProgramState, StreamExecutor
from sglang.lang.ir import SglSamplingParams

from hogwild_sgl.lang.chat import conversation
from tests.fake_server import FakeServer

TEMPLATES = ["default", "chatml", "llama-2-chat", "llama-3-instruct", "qwen", "deepseek-v3"]


class NoBackend:
    def __init__(self, template):
        self.template = template

    def get_chat_template(self):
        return self.template

    def end_program(self, s):
        pass


@pytest.fixture
def state():
    made: list[StreamExecutor] = []

    def make(template: str = "default") -> ProgramState:
        backend = NoBackend(get_chat_template(template))
        made.append(StreamExecutor(backend, {}, SglSamplingParams(), None, False))
        return ProgramState(made[-1])

    yield make
    for executor in made:
        executor.end()


def talk_of(s: ProgramState):
    s.sync()
    return conversation(s.stream_executor)


@pytest.mark.parametrize("template", TEMPLATES)
def test_roles_are_found_again_whatever_template_sglang_guessed(state, template):
    s = state(template)
    s += sgl.system("Be brief.")
    s += sgl.user("  What is\n6 * 7? ")
    s += "Let me see: "
    talk = talk_of(s)
    assert [dict(m) for m in talk.messages] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is\n6 * 7? "},
    ]
    assert talk.turn == "Let me see: "


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_guessed_templates_default_system_prompt_is_left_out(state, template):
    s = state(template)
    s += sgl.user("Hi")
    assert [m["role"] for m in talk_of(s).messages] == ["user"]


def test_an_open_assistant_role_is_the_turn(state):
    s = state()
    s += sgl.user("Hi")
    s += sgl.assistant_begin() + "I think"
    assert talk_of(s).turn == "I think"


def test_several_turns_are_kept_in_order(state):
    s = state()
    s += sgl.user("1") + sgl.assistant("one") + sgl.user("2")
    talk = talk_of(s)
    assert [m["content"] for m in talk.messages] == ["1", "one", "2"]
    assert talk.turn == ""


def test_a_state_without_roles_has_no_conversation(state):
    s = state()
    s += "Once upon a time"
    assert talk_of(s) is None


@pytest.mark.parametrize(
    "parts",
    [
        ["loose", sgl.user("Hi")],
        [sgl.user("Hi"), "loose", sgl.user("again")],
        [sgl.user("Hi"), sgl.assistant("Hello")],
        [sgl.assistant("Hello")],
        [sgl.user_begin(), "Hi"],
    ],
)
def test_what_no_chat_template_has_a_place_for_is_refused(state, parts):
    s = state()
    for part in parts:
        s += part
    with pytest.raises(ValueError):
        talk_of(s)


def test_an_ordinary_program_uses_the_models_own_template(server):
    @sgl.function
    def ask(s, question):
        s += sgl.system("Be brief.")
        s += sgl.user(question)
        s += sgl.assistant("Well, " + sgl.gen("a", max_tokens=3))
        s += sgl.user("Sure?")
        s += sgl.assistant(sgl.gen("b", max_tokens=3))

    s = ask.run(question="6 * 7?", backend=server.endpoint())
    assert s["b"] == "42}."
    first, second = (server.words.decode(b["input_ids"]) for b in server.bodies("/generate"))
    assert first == "<|system|>Be brief.<|user|>6 * 7?<|assistant|>Well, "
    assert second == (
        "<|system|>Be brief.<|user|>6 * 7?<|assistant|>Well, 42}.<|user|>Sure?<|assistant|>"
    )


def test_an_ordinary_program_without_roles_sends_its_text(server):
    @sgl.function
    def go(s):
        s += "Count: " + sgl.gen("a", max_tokens=2, temperature=0.5, stop=["}"])

    s = go.run(backend=server.endpoint())
    assert (s["a"], s.text()) == ("42", "Count: 42")
    (body,) = server.bodies("/generate")
    assert body["text"] == "Count: "
    assert body["sampling_params"]["temperature"] == 0.5


def test_several_continuations_of_an_ordinary_state_are_a_list(server):
    @sgl.function
    def go(s):
        s += "Count: " + sgl.gen("a", n=3, max_tokens=2)

    assert go.run(backend=server.endpoint())["a"] == ["42}", "42}", "42}"]


def test_an_ordinary_program_streams(server):
    @sgl.function
    def go(s):
        s += sgl.user("Hi")
        s += sgl.gen("a", max_tokens=3)

    s = go.run(stream=True, backend=server.endpoint())
    assert list(s.text_iter("a")) and s["a"] == "42}."


def test_an_ordinary_state_selects_and_forks(server):
    @sgl.function
    def go(s):
        s += sgl.user("Colour?")
        s += "It is "
        a, b = s.fork(2).states
        a += sgl.select("c", ["red", "blue"])
        b += sgl.select("c", ["red", "green", "blue sky"])
        s["pair"] = [a["c"], b["c"]]

    assert go.run(backend=server.endpoint())["pair"][0] == "blue"


def test_a_batch_of_programs_with_a_common_prefix_runs(server):
    @sgl.function
    def go(s, x):
        s += sgl.system("Long. " * 30)
        s += sgl.user(x)
        s += sgl.gen("a", max_tokens=3)

    states = go.run_batch([{"x": "1"}, {"x": "2"}], backend=server.endpoint())
    assert [s["a"] for s in states] == ["42}.", "42}."]
    assert all("[system]" not in str(body) for body in server.bodies("/generate"))


def test_a_model_without_a_chat_template_says_so():
    with FakeServer(has_template=False) as server:

        @sgl.function
        def go(s):
            s += sgl.user("Hi")
            s += sgl.gen("a", max_tokens=3)

        with pytest.warns(UserWarning):
            s = go.run(backend=server.endpoint())
            assert "chat template" in str(s.error())
