"""Questions of several turns: their prompts, and a benchmark's answers in Spec-Bench's format.

Our own. The answers to earlier turns are plain greedy decoding's, so that all methods are timed on the same prompts; in
Spec-Bench each method goes on with its own.
Left out: the format (specbench.py) and the run (bench.py).
"""

from collections.abc import Sequence

from specdec_lib.decode import decode
from specdec_lib.methods import method_label
from specdec_lib.specbench import Answer
from specdec_lib.specbench_figures import figures
from specdec_lib.speed import Call
from specdec_lib.tasks import Task
from specdec_lib.zoo import Pair


def prompt_of(pair: Pair, task: Task, known: dict[tuple, list[int]], max_new_tokens: int) -> list[int]:
    """The ids of a task's prompt, after its earlier turns and their answers. known: answers so far, by earlier turns.

    ValueError where the tokenizer has no chat template and the question more than one turn.
    """
    if not task.before:
        return pair.prompt(task.prompt)
    said = []
    for i, text in enumerate(task.before):
        said.append({"role": "user", "content": text})
        key = task.before[: i + 1]
        if key not in known:
            known[key] = decode(pair.target, pair.chat(said), max_new_tokens, stops=pair.stops).ids
        said.append({"role": "assistant", "content": _text(pair, known[key])})
    return pair.chat([*said, {"role": "user", "content": task.prompt}])


def _text(pair: Pair, ids: list[int]) -> str:
    return pair.tokenizer.decode(ids, skip_special_tokens=True).strip()


def as_spec_bench(arms: Sequence, calls: Sequence[Call], tasks: Sequence[Task], pair: Pair) -> dict:
    """answers: the first repeat's, a list an arm; specbench: Spec-Bench's figures of them beside ours, over arm 0."""
    answers: dict[str, list[Answer]] = {}
    for at, arm in enumerate(arms):
        found: dict[int, Answer] = {}
        mine = sorted((call for call in calls if call.arm == at and call.repeat == 0), key=lambda call: call.prompt)
        name = method_label(arm.name, arm.knobs)
        for call in mine:
            question = tasks[call.prompt].question
            about = (question.question_id, question.category, f"{pair.name} {name}")
            answer = found.setdefault(question.question_id, Answer(*about, [], [], [], [], []))
            answer.turns.append(_text(pair, call.ids))
            answer.new_tokens.append(len(call.ids))
            answer.wall_time.append(call.seconds)
            if call.trace is not None:
                answer.decoding_steps.append(len(call.trace.rounds))
                answer.accept_lengths += [len(r.emitted) for r in call.trace.rounds]
        answers[name] = list(found.values())

    def count(text: str) -> int:
        return len(pair.tokenizer(text, add_special_tokens=False)["input_ids"])

    names = list(answers)
    compared = {n: figures(answers[n], answers[names[0]], count) for n in names[1:]}
    return {"answers": answers, "specbench": compared}
