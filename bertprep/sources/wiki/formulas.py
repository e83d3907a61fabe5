"""Write formulas of LaTeX as plain text where that can be read: Greek letters, operators, fractions, powers and indices."""

import re

from bertprep.sources.wiki.template_rules import SUPERSCRIPT

MAX_FORMULA = 120
"""The most characters of a formula in LaTeX; a longer one is dropped."""
_GREEK = (
    "alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu "
    "ν xi ξ pi π rho ρ varrho ϱ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ "
    "Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω"
)
_SIGNS = (
    "times × cdot · cdots ⋯ ldots … dots … pm ± mp ∓ div ÷ ast ∗ star ⋆ circ ∘ bullet • le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ "
    "approx ≈ sim ∼ simeq ≃ equiv ≡ cong ≅ propto ∝ ll ≪ gg ≫ to → rightarrow → longrightarrow → Rightarrow ⇒ implies ⇒ "
    "leftarrow ← leftrightarrow ↔ Leftrightarrow ⇔ iff ⇔ mapsto ↦ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ "
    "cup ∪ cap ∩ setminus ∖ emptyset ∅ varnothing ∅ forall ∀ exists ∃ neg ¬ lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ infty ∞ "
    "partial ∂ nabla ∇ sum ∑ prod ∏ int ∫ oint ∮ angle ∠ perp ⊥ parallel ∥ mid ∣ prime ′ degree ° hbar ℏ ell ℓ Re ℜ Im ℑ "
    "aleph ℵ otimes ⊗ oplus ⊕ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ langle ⟨ rangle ⟩ vert | Vert ‖ lbrace { rbrace } colon : "
    "triangle △ top ⊤ bot ⊥ vdash ⊢ models ⊨ dagger † deg deg"
)
_WORDS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "log", "ln", "lg",
    "exp", "lim", "max", "min", "sup", "inf", "det", "dim", "ker", "gcd", "mod", "arg", "Pr",
})  # fmt: skip
_NAMES: dict[str, str] = dict(zip(*[iter(f"{_GREEK} {_SIGNS}".split())] * 2, strict=True)) | {
    word: f"{word} " for word in _WORDS
}
_PLAIN = frozenset({
    "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "mathbb", "mathcal", "mathfrak", "boldsymbol", "text", "textrm",
    "textbf", "textit", "operatorname", "rm", "bf", "it", "left", "right", "big", "Big", "bigg", "Bigg", "displaystyle",
    "textstyle", "scriptstyle", "limits", "nolimits", "mbox", "hbox", "ce",
})  # fmt: skip
"""Commands that change only how their words look."""
_SPACES = {",": " ", ";": " ", ":": " ", " ": " ", "!": "", "quad": " ", "qquad": " ", "\\": " ", "{": "\0", "}": "\1",
           "%": "%", "$": "$", "&": "&", "#": "#", "_": "_", "|": "‖"}  # fmt: skip
_COMMAND = re.compile(r"\\([A-Za-z]+|.)")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\w))\s*(?:\{([^{}]*)\}|(\w))")
_ACCENTS = {"bar": "\u0304", "overline": "\u0304", "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303", "vec": "\u20d7",
            "dot": "\u0307", "ddot": "\u0308", "underline": "\u0332"}  # fmt: skip
_ACCENTED = re.compile(rf"\\({'|'.join(_ACCENTS)})\s*(?:\{{\s*(\w)\s*\}}|(\w))")
_ROOT = re.compile(r"\\sqrt\s*\{([^{}]*)\}")
_SINGLE = re.compile(r"[\w.]*|\\[A-Za-z]+")
_POWER = re.compile(r"\^\s*(?:\{\s*([-+−]?\d+)\s*\}|(\d))")
_INDEX = re.compile(r"[_^]\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w))")


def render_formula(latex: str) -> str | None:
    r"""Return a formula as text, or None if it is too long or has a command that is not known here.

    >>> render_formula(r"\frac{3+5}{2} = 4"), render_formula(r"a_n^2 \le \sqrt{\alpha}"), render_formula(r"\begin{matrix}")
    ('(3+5)/2 = 4', 'aₙ² ≤ √α', None)
    """
    text = latex.strip()
    if not text or len(text) > MAX_FORMULA:
        return None
    for _ in range(3):  # fractions in fractions
        text = _ACCENTED.sub(lambda found: (found[2] or found[3]) + _ACCENTS[found[1]], text)
        text = _ROOT.sub(lambda root: f"√{_grouped(root[1])}", text)
        text = _FRACTION.sub(
            lambda parts: f"{_grouped(parts[1] or parts[2] or '')}/{_grouped(parts[3] or parts[4] or '')}", text
        )
        text = _POWER.sub(lambda power: (power[1] or power[2]).translate(SUPERSCRIPT), text)
    if re.search(r"\^", _INDEX.sub("", text)) or "&" in text:
        return None
    text = _INDEX.sub(_index, text)
    unknown = False

    def word(command: re.Match[str]) -> str:
        nonlocal unknown
        name = command[1]
        if name in _NAMES:
            return _NAMES[name]
        if name in _PLAIN:
            return ""
        unknown = unknown or name not in _SPACES
        return _SPACES.get(name, "")

    text = _COMMAND.sub(word, text)
    text = " ".join(re.sub(r"[{}]", "", text).translate({ord("~"): " ", 0: "{", 1: "}"}).split())
    return None if unknown or not text else text


def _grouped(part: str) -> str:
    part = part.strip()
    return part if _SINGLE.fullmatch(part) else f"({part})"


_SUBSCRIPT = str.maketrans("0123456789+-−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")


def _index(found: re.Match[str]) -> str:
    text = (found[1] if found[1] is not None else found[2]).strip()
    if found[0][0] == "^":
        return f"^{text}" if len(text) == 1 or text.startswith("\\") else f"^({text})"
    written = text.translate(_SUBSCRIPT)
    changed = all(one != other for one, other in zip(text, written, strict=True))
    return written if changed else f"_{text}"
