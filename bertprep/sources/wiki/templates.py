"""The templates of wikis that carry words of a sentence: one table with the rule of each.

A dump has templates by name only, without what they print. A template that is not in the table leaves a hole in its sentence,
which the cleaner counts by name.

Sources of the names: *excerpt*, the dump excerpt of English Wikipedia that tests read; *wtf*, the tables of the MIT-licensed
parser wtf_wikipedia. Names marked "no source" are from memory of what editors of these wikis write.
"""

import re
from collections.abc import Callable
from functools import partial

from bertprep.sources.wiki.quantities import (
    SIGNS,
    as_of,
    circa,
    coordinates,
    currency,
    day_first,
    density,
    exponent,
    fraction,
    gauge,
    lifetime,
    named_currency,
    old_style,
    ordinal,
    quantity,
    reign,
    unit_after,
    value,
    year_first,
    years_between,
)
from bertprep.sources.wiki.template_rules import (
    APOSTROPHE,
    MUSIC,
    SHIP_PREFIXES,
    Rule,
    altitude,
    any_ship,
    around,
    before,
    block,
    century,
    century_before,
    chemical,
    chinese,
    chinese_link,
    chinese_link_by_language,
    era,
    first,
    fixed,
    formula,
    joined,
    key_press,
    last,
    link_to_other_wiki,
    list_lines,
    name_for_sorting,
    named_source,
    nihongo,
    nihongo3,
    nothing,
    nuclide,
    ordinal_of_century,
    reading,
    roman,
    ruby,
    russian_link,
    second,
    ship,
    ship_class,
    sic,
    superscript,
    up_and_down,
)

# fmt: off
TABLE: tuple[tuple[Rule, str], ...] = (
    # --- Words that stand behind the first bar: fonts, line breaks, what an editor marks on a text.
    (first, "small|smaller|nowrap|nobr|nobold|noitalic|sc|vanchor|linktext|sub|abbr|tooltip|flag|ipa|vr|nts|code"),  # excerpt
    # wtf
    (first, "big|bigger|large|larger|huge|midsize|kbd|mono|var|mvar|math|xt|delink|finedetail|symb|pre|char|defn|nowiki"),
    (first, "smallcaps|allcaps|strong|em|italic|italics|bold|underline|strike|tt|samp|unicode|visible anchor|grapheme|"
            "phoneme|not a typo|proper name|no wrap|nobreak|number|num|bigmath|block indent|flagcountry|flagu|polytonic|"
            "ipablink|ipalink|ipaslink|serif|sans-serif|hebrew|cyrl|lower|raise|dfn|term|interp|citation needed span|"
            "allow wrap|noautolink|text|birth-date|birth-date and age|death-date and age|end-date|birth year and age|by|"
            "formatnum|native phrase"),  # no source
    (first, "nombre|nb|ind|abréviation|abréviation discrète|abd|refnec|référence nécessaire|référence souhaitée|pas clair|"
            "petit|petites capitales|pc|sigle|terme défini"),  # no source: fr
    (first, "versalita|versalitas|maiuscoletto|tutto attaccato|senza fonte|citazione necessaria|nie łam|klein"),  # no source
    (first, "esd|polytonisch|romain|nobr romains|lj|by2|нобр|сс|сс3"),  # no source: es, de, fr, zh, ja, ru
    (first, "число|подсказка|comment|кегль|малый|разрядка"),  # no source: ru
    # no source: ja, zh
    (first, "要出典範囲|要検証範囲|旧字体|補助漢字フォント|jis2004フォント|jis90フォント|拡張漢字|僻字|小字"),
    # --- Words that stand behind the second bar.
    (second, "lang|native name|script|rtl-lang"),  # excerpt
    (second, "h|sort"),  # wtf
    (second, "color|colored text|hover title|wikt-lang|nativename|langue|w języku|langx|font size|couleur|wt"),  # no source
    (last, "transl|resize|resize text"),  # excerpt
    (last, "transliteration|font color|tlit|translitération|romanisation"),  # no source
    # --- Several words.
    (chemical, "chem"), (formula, "chem2|ce"),  # excerpt: chem
    (joined(" "), "gaps"),  # no source
    (named_source, "harvtxt"),  # wtf: the pages of its tests
    (sic, "sic|sic?"), (key_press, "keypress|key press|key|touche"), (nuclide, "simplenuclide2|nuclide2|nuclide"),  # excerpt
    (before("M. "), "m."), (before("Mme "), "mme"), (before("Dr "), "dr"), (before("Pr "), "pr"),  # no source: fr
    (joined(" h "), "heures"), (fixed(" — "), "тире"),  # no source: fr, ru
    (name_for_sorting, "sortname|hs"),  # no source
    (fixed("C"), "carbon"), (fixed("H"), "hydrogen"), (joined(" "), "bibleref"), (first, "format price|nq|nastaliq"),  # excerpt
    (fixed("O"), "oxygen"), (fixed("N"), "nitrogen"), (joined(" "), "bibleverse"),  # no source
    (list_lines, "columns-list"), (list_lines, "col-list|colonnes|plainlist|flatlist|div col"),  # excerpt, wtf
    (block, "quote|bquote|cquote|blockquote"), (block, "pull quote"),  # excerpt, wtf
    (block, "block quote|quotation|rquote|quote box|long quotation|poemquote|verse translation|zitat|cita|citation bloc|"
            "citazione|цитата|引用|引用文|cytat|citaat|citação|citação2|quadro de citação"),  # no source
    # --- Marks.
    (fixed(APOSTROPHE + "s"), "'s"), (fixed(APOSTROPHE), "'"), (fixed(f'{APOSTROPHE} "'), "' \""),  # excerpt
    (fixed(f'" {APOSTROPHE}'), "\" '"), (fixed(APOSTROPHE), "-'"),  # no source
    (fixed("="), "="), (fixed("–"), "ndash|en dash|–"), (fixed("—"), "mdash|em dash|—"), (fixed(" – "), "snd|snds"),  # wtf
    (fixed("—"), "mdashb"), (fixed("—"), "emdash"), (fixed('"'), '-"'), (fixed(" "), "nbsp|thinsp|spaces"),  # excerpt
    # no source
    (fixed(" – "), "spaced ndash|spnd|sndash|spaced en dash|spaced endash|--"), (fixed(" — "), "spaced mdash|spmd"),
    (fixed(" "), "space|sp|espace|insécable|nnbsp|hsp|0|gap|全角スペース"),  # no source
    (fixed(" · "), "·|dot|middot|•"), (fixed(" · "), "bull|bullet"), (fixed(" / "), "\\"), (fixed(" / "), "slash"),  # wtf
    (fixed("1/2"), "1/2"), (fixed("1/3"), "1/3"), (fixed("2/3"), "2/3"), (fixed("1/4"), "1/4"), (fixed("3/4"), "3/4"),  # wtf
    (fixed("&"), "&|ampersand"), (fixed("*"), "*|asterisk"), (fixed("#"), "number sign"), (fixed("["), "bracket"),  # wtf
    (fixed("π"), "pi"), (fixed("°"), "degree|deg|°"), (fixed("×"), "times"), (fixed("−"), "minus"),  # no source
    (fixed("ʻ"), "okina"), (fixed("ʾ"), "hamza"), (fixed("ʿ"), "ayin"),  # no source
    (around("⟨", "⟩"), "angbr"), (around("⟨", "⟩"), "angle bracket"), (around("⟨", "⟩"), "angbr ipa"),  # excerpt, wtf
    (around("[", "]"), "brackets|bracketed"), (around("(", ")"), "parentheses|paren"),  # no source
    (around(APOSTROPHE, APOSTROPHE), "gloss|single quotes"), (around('"', '"'), "qq|double quotes"),  # no source
    (around(f"lit. {APOSTROPHE}", APOSTROPHE), "lit.|lit|literal translation"),  # no source
    (around("« ", " »"), "citation|guil|guillemets"),  # no source: fr; English {{Citation}} has only named arguments
    (around("„", "“"), '"'),  # no source: de
    (ruby, "ruby|ruby-ja|rubi"), (reading, "読み仮名|読み仮名 ruby不使用|ふりがな"),  # no source: ja, zh
    # --- Dates.
    (as_of, "as of"), (as_of, "asof"),  # excerpt; no source
    (year_first, "birth date|birth date and age|death date|death date and age|start date|start date and age|dts"),  # excerpt
    (year_first, "end date|end date and age|bda|dob"), (first, "start-date"),  # wtf
    (year_first, "release date|film date|launch date|dda"),  # no source
    (day_first("fr"), "date|date-|date de naissance|date de décès|date de naissance-|date sport"),  # no source: fr
    (day_first("es", " de "), "fecha|fecha de nacimiento|fecha de fallecimiento|fecha de inicio"),  # no source: es
    (day_first("pt", " de "), "dni|dtlink|data de nascimento|nascimento|falecimento|dataext"),  # no source: pt
    (day_first("it"), "data"), (day_first("pl"), "data urodzenia|data śmierci"),  # no source: it, pl
    (day_first("ru"), "дата рождения|дата смерти|дата"), (day_first("nl"), "geboren|overleden"),  # no source: ru, nl
    (lifetime, "bd"),  # no source: zh
    (old_style, "oldstyledate"), (years_between, "age"), (density, "pop density"),  # excerpt
    (circa, "circa"), (circa, "c.|ca."), (before("fl. "), "floruit|fl.|fl"), (before("b. "), "b."), (before("d. "), "d."),
    (reign, "reign|r."),  # no source, but for circa (wtf)
    (century, "s|siècle|s2"), (century_before, "-s"), (ordinal_of_century, "s-|-s-|s mini-"),  # no source: fr
    (before("siglo "), "siglo"), (before("século "), "séc"),  # no source: es, pt
    (fixed("er"), "er"), (fixed("1er"), "1er"), (fixed("re"), "re"), (before("n° "), "n°|numéro"),  # no source: fr
    (fixed("av. J.-C."), "av jc|av. j.-c.|avjc"), (fixed("apr. J.-C."), "ap jc|apr. j.-c.|apjc"),  # no source: fr
    # no source: es, pt, it
    (era("a. C."), "a. c."), (era("d. C."), "d. c."), (era("a.C."), "a.c.|ac"), (era("d.C."), "d.c.|dc"),
    # --- Numbers and units.
    # excerpt, wtf; no source: es, pt, it
    (quantity, "convert"), (quantity, "cvt"), (quantity, "convertir|converter|converti|conv"),
    (value, "val"), (exponent, "e"), (exponent, "e10|×10^|10^"),  # excerpt; no source
    (unit_after, "unité"), (unit_after, "unidad|unidade|fmtn|m|zahl|jednostka"),  # wtf: fr; no source: es, pt, it, de, pl
    (superscript, "sup"), (superscript, "exp|exposant"), (up_and_down, "su"),  # excerpt; no source: fr, en
    (fraction, "frac"), (fraction, "sfrac"), (fraction, "fraction|tfrac|bruch|дробь|分数"),  # excerpt, wtf; no source
    (before("√"), "radic"), (before("√"), "sqrt"), (around("|", "|"), "abs"),  # wtf; no source
    (ordinal, "ordinal|ord|nth"), (altitude, "höhe"),  # no source: en, de
    (coordinates, "coord"), (coordinates, "coor|coor dms|coor dm|coor dec"),  # excerpt, wtf
    (gauge, "railgauge"), (gauge, "track gauge|gauge|écartement|spurweite"),  # excerpt; no source
    (named_currency, "currency|monnaie|iso4217"), (named_currency, "moneda|valuta"),  # wtf; no source
    *((currency(sign), name) for name, sign in SIGNS.items()),
    # --- Names, and words of two languages. Ships are in PATTERNS.
    (any_ship, "ship"), (ship_class, "sclass|sclass2|sclass-|sclass2-"),  # no source
    (nihongo, "nihongo"), (nihongo, "nihongo-s"), (first, "nihongo2|nihongo foot"), (nihongo3, "nihongo3"),  # excerpt, wtf
    (nihongo, "japonais"), (nihongo3, "nihongo4"),  # no source: fr
    (chinese, "zh"), (chinese, "chinese|zh-full|chinois"), (joined(", "), "korean|coréen|vie"),  # no source
    (link_to_other_wiki, "ill|interlanguage link|lien|仮リンク|illm|ilc|link-interwiki|enlace interlingüístico"),  # no source
    (russian_link, "нп|нп1|нп2|нп3|нп4|нп5|не переведено|не переведено 1|не переведено 2|не переведено 3|не переведено 4|"
                   "не переведено 5|iw"),  # no source: ru
    (chinese_link, "le"),  # no source: zh
    (chinese_link_by_language, "tsl|translink"),  # no source: zh
    (lambda arguments: MUSIC.get(arguments.get(1).lower(), ""), "music"),  # excerpt
    (before("U.S. Patent "), "us patent"), (before("ISBN "), "isbn"), (before("doi:"), "doi"),  # no source
    (before("OCLC "), "oclc"),  # excerpt
    # --- Templates that print no word of a sentence: notes, complaints, pictures, sounds, boxes, navigation.
    (nothing, "cn|rp|sfn|sfnp|efn|refn|reflist|flagicon|clear|anchor|main|main article|see also|further|details|about|"
              "other uses|redirect|redirect2|distinguish|for|hatnote|portal|portal bar|commons|commons category|wiktionary|"
              "wikiquote|wikibooks|wikispecies|sister project links|authority control|good article|featured article|"
              "refbegin|refend|div col end|col-begin|col-end|col-break|colbegin|colend|legend|chart|toc right|clarify|when|"
              "which|page needed|failed verification|better source|citation needed|ipac-en|respell|pow|increase|harvid|bots|"
              "pp-move|eqm|!|currentyear|qualify evidence|according to whom|full|inflation-fn|url|official website|dmoz|"
              "bar percent|bartable|fossil range|audio|imdb name|youtube|dubious"),  # excerpt
    (nothing, "engvarb|request quotation|wayback|sep entry|updated|lsj"),  # wtf: the pages of its tests
    (nothing, "fact|r|sfnm|ref|note|who|by whom|harv|harvnb|decrease|steady|!!|(!|!)|!-|dead link|vague|where|why|how|what|"
              "whom|update after|update inline|disambiguation needed|verify source|verification needed|full citation needed|"
              "original research inline|weasel inline|better source needed|non-primary source needed|listen|notelist|"
              "notetag|fn|ref label|note label|efn-ua|efn-lr|unreferenced|refimprove|short description|use dmy dates|"
              "use mdy dates|cite|shy|zwj|zwnj|wbr|clr|br|webarchive|cbignore|-|toclimit|wikisource"),  # no source
    # no source: de
    (nothing, "fnz|belege|belege fehlen|hauptartikel|siehe auch|normdaten|commonscat|exzellent|lesenswert|anker|absatz"),
    (nothing, "référence|références|quand|qui|lequel|où|précision|article détaillé|voir aussi|portail|palette|"
              "autres projets|lire en ligne|écouter|source insuffisante|api"),  # no source: fr
    (nothing, "cita requerida|ap|vt|listaref|control de autoridades|afi|vedi anche|chiarire|chi|quando|senza fonti|portale|"
              "interprogetto|controllo di autorità|nota disambigua|torna a"),  # no source: es, it
    # no source: ru
    (nothing, "нет аи|нет в источнике|уточнить|кто|когда|что|чей|примечания|основная статья|мфа|внешние ссылки"),
    # no source: ja, zh
    (nothing, "要出典|出典無効|要検証|誰|いつ|どこ|独自研究|脚注ヘルプ|efn2|main2|see|來源請求|来源请求|noteta"),
    (nothing, "carece de fontes|carece de fontes2|nota|referências|artigo principal|quem|ver desambig|fakt|przypis|przypisy|"
              "odn|osobny artykuł|kto|kiedy|bron?|appendix|bronnen|zie hoofdartikel|zie ook|zie dp"),  # no source: pt, pl, nl
)
"""A rule, and the names of its templates in lower case, with bars between them; the comment has their source."""
# fmt: on
RULES: dict[str, Rule] = {name: rule for rule, names in TABLE for name in names.split("|")}
_OF_CASE = re.compile(r"[a-z]{2,4}S")
"""German {{laS|Canis}}, {{enS|dog}}: a word and its language. Here the case counts."""
PATTERNS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (re.compile(r"lang-[a-z-]+\d?|script/.+"), first),  # excerpt
    (re.compile(r"link-[a-z-]+|internal link helper/[a-z-]+"), chinese_link),  # no source: zh
    (re.compile(rf"({SHIP_PREFIXES})"), ship),  # excerpt: hms, uss
    (re.compile(r"(-?[ivxl]+(?:er?|re) siècle)"), lambda name, _: roman(name)),  # no source: fr
    (re.compile(r"(\d+(?:er?|re|ème))"), lambda name, _: name),  # no source: fr
    (
        re.compile(r"ipa-[a-z-]+|ipac-[a-z-]+|cite .+|pp-.+|use .+ english|.+ icon|s-[a-z]+|col-\d|wikisource.+|.+[- ]inline"),
        nothing,
    ),  # excerpt
    (re.compile(r"(?:infobox|taxobox|navbox|sidebar|ficha|карточка|картка|bio|tassobox)(?:$| .*)"), nothing),  # excerpt, wtf
    (
        re.compile(r"ouvrage|lien web|literatur|internetquelle|книга|статья|публикация|cita .+|cytuj.*|citar .+|citeer .+"),
        nothing,
    ),  # no source
)


def find_rule(name: str) -> Rule | None:
    """Return the rule for the template `name`, as it is written in a page; None if the table has none."""
    key = " ".join(name.replace("_", " ").split())
    key = re.sub(r"^(?:(?:template|subst|safesubst|vorlage|modèle|plantilla|шаблон|msg):\s*)+", "", key, flags=re.IGNORECASE)
    if _OF_CASE.fullmatch(key):
        return first
    return RULES.get(key.lower()) or _rule_of_pattern(key.lower())


def _rule_of_pattern(key: str) -> Rule | None:
    for pattern, rule in PATTERNS:
        if match := pattern.fullmatch(key):
            return partial(rule, match[1]) if match.re.groups else rule
    return None
