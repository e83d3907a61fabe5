"""Where sentences end, in many languages, and that splitting loses nothing and takes a time that is linear."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertprep.config import BY_RULES
from bertprep.text.long_sentences import MAX_CHARACTERS, MAX_WORDS, is_too_long, measure
from bertprep.text.sentences import split_documents, split_lines, split_sentences
from bertprep.text.wrapping import Counts
from tests.text.unicode import SENTENCE_TERMINALS

LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines breaks a line

# What a paragraph is split into: "|" stands where a sentence ends.
SENTENCES = {
    "en": [
        "The U.S. paid $3.5 million, i.e. all of it.| Mr. Jay (of New York) said: “It is done.”| Was it?| No!| He left.",
        "He was World No. 1.| See Eq. (2), Fig. 3 and vol. 1.| J.-H. Rosny and John F. Kennedy came.",
        "So did I.| Mr. Jay did not.",
        "They live in the U.S.| The house is old.| She is a pro-U.S. Senator.| He has a Ph.D.| Yes, so has she.",
        "Apple Inc. Chairman Jay spoke at 5 p.m. on Sept. 3.| It was late.| He came at 5 p.m.| The end.",
        "He waited…| She came.| He was… tired.| And then...| It broke.| He said... nothing.",
        'He asked: "Why?| Who?| I know nothing."| She went.| "Stop!"| Emma ran.| "Stop!" he said.',
        "He said (as always.| Nobody listened.| All left.",
        "It is 6' 2\" tall.| It is great :) We went. :-)| ’Twas late.| The dogs' owners came.| Rock 'n' roll lives.",
        "So it came.¹| He left.[1]| She stayed.[a]| It is so.)| All is well.”’| (He went.)| [So did she.]| _It is so._| *Yes.*",
        'He came. "| She went. )| They left.',
        "1. Non-interactive users.| II. The end.| (a) It is so.",
        "Chapter 12. Advanced Topics",
        "5.2.2. Scripts",
        "B.1. Processes",
        "It cost 3.50.| 7 men came.| In 1990.| Then it ended.| Use .htaccess and Node.js for it.| See example.org for it.",
        "Did he?!| Yes!!!| Well?...| No.",
    ],
    "de": [
        "Sie kam z. B. am 3. Oktober.| Er auch, z.B. am 5. Mai.| Im Jahr 1990.| Danach ging er.",
        "Prof. Dr. Meier bzw. Hrn. Kurz traf er ca. 1999.| Vgl. Abb. 3 und S. 5.| „Ich gehe.“| Sie ging.| »Komm.«| Er kam.",
        "Ludwig XIV. König von Frankreich, war da.| Er sagte: „Ich bin es.| Wer bist du?“| Sie schwieg (s. o.), usw.| Er ging.",
    ],
    "fr": [
        "M. Dupont arriva.| Mme. Petit dit : « Allons. »| Elle rit.| Art. 5 de la loi, cf. p. 3.| « Quoi ? »| Rien.",
        "L'éd. Gallimard parut.| Il partit…| Elle resta.",
    ],
    "ru": [
        "Это т. е. так.| В 1990 г. Москва росла.| Города, сёла и т. д.| Потом ушли.| А. С. Пушкин писал.| Ул. Ленина, д. 5.",
        "«Да.»| Он ушёл.| — Иди сюда!| — Нет.| Он ждал…| Она пришла.",
    ],
    "es": ["El Sr. García llegó.| ¿Quién es?| ¡Es él!| La Dra. Ruiz salió.| Véase pág. 5."],
    "it": ["Il sig. Rossi arrivò.| Il dott. Verdi no.| Perché?| Non so."],
    "pl": ["Np. prof. Kowalski i dr hab. Nowak przyszli 3. Maja.| Potem wyszli."],
    "cs": ["Bylo to 3. Října.| Pak odešel.| Viz obr. 5."],
    "nl": ["Dhr. Jansen kwam bijv. Maandag.| Toen ging hij."],
    "el": ["Ο κ. Παπάς ήρθε.| Μετά έφυγε."],
    "hi": [
        "डॉ. शर्मा आए।| वे गए।| यह ठीक है॥| क्या?| हाँ।यह भी।".replace("।यह", "।|यह"),
        "प्रा. शर्मा जि. पुणे में 25 कि.मी. दूर हैं।| वह ठीक है.| वह बी.ए. पास है।",
    ],
    "mr": ["ते जि. पुणे येथे आहे.| रु. 500 दिले."],
    "bn": ["ডা. রায় এলেন।| তিনি গেলেন।| এটি 5 কি.মি. দূরে।"],
    "ar": ["ذهب د. أحمد إلى السوق.| هل عاد؟| نعم.", "هذا جيد؟| نعم۔| حسنا."],
    "ur": ["یہ ٹھیک ہے۔| وہ گیا۔"],
    "fa": ["او آمد.| آیا رفت؟| بله."],
    "he": ["הוא בא.| היא הלכה!| כן."],
    "zh": [
        "他说：“你好。”|她走了。|这是near。|A是。|3月来。|真的吗？！|是的！|他说……然后走了。|（好。）|完了",
        "「你好。」|他说。|3．14是π。|他笑道:“走吧!”|他走了。",
    ],
    "ja": [
        "デフォルトは near です。|near は near です。|「そうです。」と言った。|「行く。」|彼は出た。",
        "そう？と聞いた。|はい！|でもだめ。",
        "『はい。』って言う。|3．5倍。|終わり｡|次",
    ],
    "ko": ["그는 왔다.| 그녀는 갔다.| 정말?| 네."],
    "hy": ["Ես եկա։| Դու գնացիր։"],
    "am": ["ሰላም ነው።| እሺ።"],
    "my": ["သူ လာသည်။| သူ သွားသည်။"],
    "km": ["គាត់មក។| គាត់ទៅ។"],
    "bo": ["བཀྲ་ཤིས། །|བདེ་ལེགས།|ལྷ།"],
    "sr": ["Г. Петровић је дошао.| Онда је отишао."],
}


@pytest.mark.parametrize(("language", "marked"), [(code, each) for code, texts in SENTENCES.items() for each in texts])
def test_sentences_end_at_the_marks_of_every_script_and_not_behind_abbreviations(language: str, marked: str) -> None:
    assert split_sentences(marked.replace("|", ""), language) == [each.strip() for each in marked.split("|")]


@pytest.mark.parametrize("mark", SENTENCE_TERMINALS)
def test_every_sentence_terminal_of_unicode_ends_a_sentence(mark: str) -> None:
    assert split_sentences(f"Word{mark} Word") == [f"Word{mark}", "Word"]


def test_another_language_has_other_abbreviations() -> None:
    text = "Er kam am 3. Oktober."
    assert split_sentences(text, "de") == split_sentences(text, "deu") == split_sentences(text, "de-at") == [text]
    assert split_sentences(text, "en") == split_sentences(text, "xx") == ["Er kam am 3.", "Oktober."]


def test_small_letters_begin_sentences_in_text_without_capitals() -> None:
    assert split_sentences("i came. i saw, e.g. this. who? he.") == ["i came.", "i saw, e.g. this.", "who?", "he."]


@pytest.mark.parametrize("text", ["ประโยคแรกยาวพอสมควร " * 30, "ປະໂຫຍກທໍາອິດ " * 40], ids=["Thai", "Lao"])
def test_thai_and_lao_are_divided_at_spaces(text: str) -> None:
    found = split_sentences(text, "th")
    assert " ".join(found) == text.strip()
    assert len(found) > 3
    assert all(40 < len(each) < 100 for each in found[:-1])


LONG = {
    "semicolons": "the house stood there; " * 60,
    "commas": "the house stood there, " * 60,
    "dashes": "the house stood there — " * 60,
    "words": "house " * 400,
    "short words": "a " * 900,
    "Hanzi and commas": "我们今天去了北京，看见了很多人，" * 30,
    "Hanzi": "汉" * 700,
    "kana": "ひらがな" * 200,
    "Thai without a space": "ภาษาไทย" * 200,
    "Hangul": "한국어 문장 " * 200,
    "Khmer": "ភាសាខ្មែរ" * 200,
    "half Hanzi": "word " * 100 + "汉" * 300,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_no_sentence_is_longer_than_the_limit(text: str) -> None:
    counts = Counts()
    found = split_sentences(text, counts=counts)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert max(map(measure, found)) <= MAX_CHARACTERS
    assert max(len(each.split()) for each in found) <= MAX_WORDS
    assert min(map(measure, found)) > MAX_CHARACTERS / 6
    assert counts.divided_sentences == 1


def test_a_long_sentence_is_divided_at_its_best_inner_mark() -> None:
    words = "word " * 45
    for mark, other in ((";", ","), (":", ","), (",", "")):
        first, second = f"{words}{other} {words}word{mark}", f"{words}{other} {words}end."
        assert split_sentences(f"{first} {second}") == [" ".join(first.split()), " ".join(second.split())]


def test_a_word_is_never_torn() -> None:
    word = "x" * 2000
    assert split_sentences(f"One {word} two.") == [f"One {word}", "two."]


def test_lines_that_the_user_calls_sentences_are_only_counted() -> None:
    counts, text = Counts(), "One. Two.\n" + "a word " * 100 + "\n" + "汉" * 130
    (found,) = split_documents([text], "lines", "en", counts)
    assert found == [line.strip() for line in text.split("\n")]
    assert counts == Counts(long_lines=2)
    assert [is_too_long(line) for line in found] == [False, True, True]


@pytest.mark.parametrize(
    "text", ["我们今天去了北京。他说很好！", "汉", "He came. ", "Mr. ", "a ", "ก ", '."', "- x\n", "x-\n", "\x0c1\n", "“"]
)
def test_the_time_is_linear_in_the_length_of_a_document(text: str) -> None:
    def cpu(characters: int) -> float:
        document = text * (characters // len(text))
        times = []
        for _ in range(3):
            started = time.process_time()
            split_sentences(document)
            times.append(time.process_time() - started)
        return min(times)

    cpu(10_000)
    assert cpu(400_000) < 20 * cpu(50_000) + 0.1  # 8 times, if it is; 64 times, if it is quadratic


@pytest.mark.parametrize("line_break", LINE_BREAKS)
def test_no_sentence_holds_a_line_break_of_any_kind(line_break: str) -> None:
    found = split_sentences(f"One{line_break}two.{line_break}")
    assert found == (["One", "two."] if line_break in "\n\r" else ["One two."])
    assert split_lines(f"One{line_break}two.{line_break}") == (["One", "two."] if line_break == "\n" else ["One two."])


TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("aB.!?…。“”)\"' ;:—ก汉の" + LINE_BREAKS), max_size=200)


@given(TEXT)
@example("Dr. A.\u2028B. C.\x00\x00. \ufeff.")
@example("你好。再见！")
@example("\U0001f600  \U00010a57 a")
def test_no_text_is_lost(text: str) -> None:
    counts = Counts()
    found = split_sentences(text, counts=counts)
    if not (counts.page_numbers or counts.running_heads or counts.joined_words):
        assert "".join("".join(found).split()) == "".join(text.split())
    for lines in (found, split_lines(text)):
        assert all(line == " ".join(line.split()) != "" for line in lines)
        assert all(line.splitlines() == [line] for line in lines)


@given(st.lists(TEXT, max_size=6))
def test_documents_are_split_together_as_one_by_one(texts: list[str]) -> None:
    together, alone = Counts(), Counts()
    assert [*split_documents(texts, BY_RULES, "en", together)] == [split_sentences(text, counts=alone) for text in texts]
    assert together == alone


PIECES = re.split(
    r"\|",
    "The law is old. |They came! |Did he go? |It cost $3.5 million, in 1894. |So (of us) it is. |Mr. |U.S. |p.m. |J. |. |.|! |"
    "?|. . . |,|.\"|\" |'|' |(|)|(1) |a) |2)|ii. |[|]|<|>|1. |- |\u201c|\u201d|\u2019|\u2026 |\u3002|\u00ab|\u201e|"
    "\u4f60\u597d|the |House |civil|I |A |7 |\t|\r\n|\u00a0|\u2028|\x00| |  ",
)


@pytest.mark.parametrize("language", ["en", "de", "zh"])
@given(paragraphs=st.lists(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1).map("".join), max_size=5))
@example(paragraphs=["(So it is.", "I came.", "He said \u201cNo. I left.", "Ok)\u201d he said. It is."])
def test_an_unpaired_mark_never_reaches_across_a_blank_line(language: str, paragraphs: list[str]) -> None:
    paragraphs = [each.replace("\n", " ").replace("\r", " ").replace("\x0c", " ") for each in paragraphs]
    text = "\n\n".join(paragraphs)
    if all(each.islower() == text.islower() for each in paragraphs):  # in text without capitals, small letters begin sentences
        assert split_sentences(text, language) == [each for part in paragraphs for each in split_sentences(part, language)]
