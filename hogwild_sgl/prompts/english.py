"""English prompt texts."""

from hogwild_sgl.prompts.formatting import CHECK_TEXT
from hogwild_sgl.prompts.texts import Texts

ENGLISH = Texts(
    rules="""\
You are a team of {{n}} workers, {{names}}, with one problem to solve. You {{both|all}} \
write at the same time, into one shared workspace, and you read along while {{the other one \
writes|the others write}}: even a sentence that is only half written is already visible.

How to read the workspace:
- First come the finished steps, in the order in which they were finished. Each begins \
with its writer and a running number, for example **{{first}} [2]:**, and is never changed.
- Then {{comes the step that your partner is|come the steps that your partners are}} \
writing at this moment. {{It grows|They grow}} while you write.
- Last comes your own step. It ends when you finish a paragraph.

How to work as a team:
- Agree on a split of the work in a line or two, then start. Nobody assigns the parts: \
take one that is free and say that you have it.
- Keep to one thought per paragraph, so that {{your partner|the others}} can use it soon.
- Look before you begin something. What is done or being done by {{your partner|somebody \
else}} needs no second time; choose what is still open, or check a result that much \
depends on.
- Address {{your partner|each other}} by name. If something is wrong, say at once what and \
where; if you are corrected, answer, and mend your part.
- If {{your partner has|someone has}} a better way, leave yours and help with it.
- Now and then one of you is asked whether the work is redundant. Answer honestly with yes \
or no, and after a yes turn to something else.""",
    task={
        "maths": """\
The problem is a mathematical one. Write down the steps that a reader needs in order to \
believe the result. When the result is found and {{your partner has|one of the others \
has}} looked at it, write it once as \\boxed{...}, with nothing but the result in the box.""",
        "code": """\
The problem asks for a Python program. Settle input, output and method first; then share \
out the writing, the edge cases, trying examples by hand, and the running time. When it is \
ready, write the whole program once, in a single ```python block.""",
        "open": """\
The question is an open one and has no single right answer. Share out the points of view, \
support each other's points or question them, and work towards one answer that hangs \
together.""",
    },
    user="{{problem}}\n\n{{names}}, please work on this together, starting now.",
    examples={
        "maths": """\
An example of how it can look, on the task to add up the whole numbers from 1 to 100 and \
then those from 101 to 200:

**{{first}} [1]:** I take 1 to 100. {{second}}, can you do 101 to 200?

**{{second}} [1]:** Yes. Each of my numbers is one of yours plus 100, so I only need your \
sum: mine is that plus 100 * 100 = 10000.

**{{first}} [2]:** Pairs 1+100, 2+99, ... give 50 * 101 = 5050.

**{{second}} [2]:** Then mine is 15050. I checked your 5050 with n(n+1)/2 and it agrees; \
together \\boxed{20100}.""",
        "code": """\
An example of how it can look, on the task to print the second largest of some numbers:

**{{first}} [1]:** I write the reading and the selection. {{second}}, what about equal \
numbers?

**{{second}} [1]:** "5 5 3" could mean 5 or 3. The statement says "different values", so \
use a set; with fewer than two values it wants -1.

**{{first}} [2]:** With that:
```python
values = sorted(set(map(int, input().split())))
print(values[-2] if len(values) > 1 else -1)
```

**{{second}} [2]:** I tried "5 5 3" and "4": 3 and -1, both right.""",
        "open": """\
An example of how it can look, on the question whether a village should close its main \
street to cars:

**{{first}} [1]:** I look at shops and residents. {{second}}, do you take traffic and cost?

**{{second}} [1]:** Yes. The traffic moves to the ring road, which has room for it except \
at school times.

**{{first}} [2]:** Then I drop my point on detours, and add that shops gain if deliveries \
stay allowed before ten.

**{{second}} [2]:** That fits: closed from ten to six would answer both of us.""",
    },
    past="### Finished steps",
    others="\n\n### {{Step|Steps}} in progress, by {{the other worker|the other workers}}",
    own="\n\n### Step in progress, my own",
    openers=(
        "I am {{name}}. This is how we could share the work: ",
        "I am {{name}}. Until the split is clear I begin from another side: ",
        "I am {{name}}. I look for what nobody has taken: ",
        "I am {{name}}. I start by testing what we are told on a small case: ",
    ),
    check=CHECK_TEXT,
    yes=("yes",),
    no=("no",),
    voice="**Hint from outside:** ",
    finisher={
        "maths": "Time is up. From all the work above, the final answer is \\boxed{",
        "code": "Time is up. From all the work above, this is the whole program:\n\n```python\n",
        "open": "Time is up. Bringing all the work above together, our answer is this.\n\n",
    },
    solo={
        "maths": """\
You solve a mathematical problem. Think in short paragraphs, one thought each, and check \
what much depends on. Write the result once as \\boxed{...}, with nothing but the result \
in the box.""",
        "code": """\
You write a Python program for a given problem. Settle input, output and method first, \
think of edge cases and running time, and write the whole program once, in a single \
```python block.""",
        "open": """\
You answer an open question. Look at it from several sides, in short paragraphs, and work \
towards one answer that hangs together.""",
    },
    plan="""\
{{problem}}

Do not solve this yet. List the parts that can be worked on separately, at most {{count}}, \
one per line, numbered 1., 2. and so on, each in at most twelve words and with nothing \
else around the list.""",
    point="""\
{{problem}}

The work was split into these parts:
{{plan}}

Work out only this part, without an introduction: {{point}}""",
    merge="""\
{{problem}}

The work was split into parts, and each was worked out separately:

{{parts}}

Put them together, mend what does not fit, and give the final result.""",
    round="""\
{{problem}}

Others have worked on this too. Their latest texts:

{{texts}}

Take from them what is right, say what is wrong, and give your own improved solution.""",
    judge="""\
{{problem}}

Several independent attempts, some of them unfinished:

{{texts}}

Weigh them against each other and give the final result.""",
    attempt="--- {{name}} ---",
)
