"""Abbreviations whose full stop does not end a sentence, by language, and words that begin a sentence after one.

Each table is a string of words, in lower case and without the last full stop. Letters that stand alone, such as initials, and
words with a full stop inside, such as U.S or z.B, need no entry: they are abbreviations in every language.
"""

from dataclasses import dataclass
from functools import cache

_TITLES = {
    "": "dr mr mrs ms mme mlle prof hr lt col gen capt messrs",
    "en": "rev hon sgt maj cmdr adm gov sen rep pres supt insp cpl pvt vs cf viz approx esp incl bros",
    "de": "hrn bzw ca vgl evtl ggf inkl exkl usf sog gegr geb gest verh jh jhdt chr phil med ing dipl mag lic rer nat "
    "insb bspw zzgl abzgl engl franz dt lat griech",
    "fr": "mm mgr me vve cf ex env av apr éd éds trad coll cie sté ste",
    "es": "sr sra srta dra d dª dn dña ud uds vd lic ing arq gral cnel cap avda av pza cf ej aprox",
    "ca": "sr sra srta dr dra av cf ex",
    "it": "sig sigg sigra dott dott.ssa avv ing arch on mons cf es ecc min",
    "pt": "sr sra srs dr dra d exmo exma eng av cf ex aprox pe",
    "nl": "dhr mevr mw mej drs ir ing mr ds bijv enz evt resp vgl zgn ca o.a",
    "ru": "г гг гр гос др проф акад доц инж им ул пл пер просп обл респ св ср см напр тов изд рус англ нем фр лат греч "
    "кн деп губ уезд рож ум прибл",
    "uk": "р рр м вул пл просп обл проф акад доц ім св див напр напр тов англ нім укр рос",
    "bg": "г гр ул бул проф акад доц инж св вж напр",
    "sr": "г др проф мр инж св ул dr prof mr inž sv ul",
    "pl": "p pp inż mgr hab im ul pl al św np tzn tzw ok ww płk gen kpt por ks",
    "cs": "p pí ing mgr bc mudr judr phdr doc např tzv tj resp sv ul nám gen plk mj",
    "sk": "p ing mgr bc mudr judr phdr doc napr tzv tj resp sv ul nám",
    "sl": "g ga gdč dr mag prof inž sv ul npr oz",
    "hr": "g gđa dr mr prof ing sv ul npr tzv odn",
    "sv": "hr fr dvs ca t.ex bl.a kl jfr resp inkl exkl",
    "da": "hr fr ca kl fx f.eks bl.a jf inkl ekskl ing mag",
    "no": "hr fr ca kl f.eks bl.a jf inkl ekskl",
    "fi": "hra rva nti esim ns ks mm ym prof tri fil maist",
    "et": "hr pr prof dr nt vt",
    "lv": "dr prof piem sk",
    "lt": "dr prof pvz žr kun pulk",
    "hu": "dr prof ifj id özv pl ún stb szt vö",
    "ro": "dl dna dra d-na d-l sf prof ing str bd ex cca",
    "tr": "dr prof doç yrd av sn bkz örn alb gen",
    "el": "κ κα κος δρ καθ βλ πρβλ αγ λ.χ π.χ δηλ",
    "id": "dr prof ir drs h hj tn ny sdr yth",
    "vi": "ts gs pgs ths bs ks tp q tx tt",
    "hi": "डॉ डा प्रो प्रा जि रु लि सं ले चौ "
    "पं श्री स्व कु सु मि मिस मो बी सी डी जी एच आई जे के एल एम एन ओ पी आर एस टी यू वी डब्ल्यू एक्स वाई जेड एफ ए ई",
    "mr": "डॉ डा प्रा जि रु ता प्रो पं श्री कै सौ कु रा मा",
    "ne": "डा डॉ प्रा पं श्री",
    "bn": "ড ডা মো মোঃ প্রফ অধ্যা শ্রী",
    "ar": "د أ م ص ت ه ق",
    "fa": "د م ص ق ه",
}  # fmt: skip
"""Before a name or another word of the same sentence, whatever it looks like."""
_NUMBERED = {
    "": "no nos nr nrs num p pp pg vol vols fig figs eq eqs eqn ch chap sec sect art arts par tab ed eds § pt pts bd abs "
    "jan feb mar apr jun jul aug sep sept oct nov dec ca c approx max min tel",
    "de": "abb abschn anm aufl art bde bl hft kap lfd okt dez mär s z ziff zt hs",
    "fr": "n nº n° t chap fasc art févr juil sept oct nov déc janv avr sect tél fol",
    "es": "n núm núms nº n.º pág págs cap caps art arts ene abr ago dic t",
    "ca": "núm pàg pàgs cap art",
    "it": "n nn pag pagg cap art gen mag giu lug ago set ott dic sec",
    "pt": "n nº n.º núm pág págs cap caps art arts fev abr mai ago set out dez",
    "nl": "nrs blz pag hfdst art afb okt mrt",
    "ru": "№ стр с рис табл гл п пп ст ч т тт вып разд илл янв февр мар апр авг сент окт нояб дек",
    "uk": "№ стор с рис табл гл п ст ч т вип розд",
    "bg": "№ стр с фиг табл гл чл т",
    "pl": "str s rys tab rozdz art poz t nry ust",
    "cs": "č str s obr tab kap sv čl odst",
    "sk": "č str s obr tab kap zv čl ods",
    "sl": "št str sl tab pogl čl", "hr": "br str sl tab pogl čl",
    "sv": "nr s sid kap fig tab okt", "da": "nr s kap fig okt", "no": "nr s kap fig okt",
    "fi": "n:o s luku kuva", "hu": "sz old fej ábra", "ro": "nr pag cap art vol",
    "tr": "no s sf böl md", "el": "αρ σελ κεφ εικ τ", "id": "hal hlm bab gbr",
}  # fmt: skip
"""Before a number, also in brackets."""
_OTHERS = {
    "": "inc ltd co corp etc al ph jr sr st mt ft fr ave blvd rd est dept univ assn bros tel ext int",
    "de": "usw str mio mrd tsd min max std gmbh allg amtl etc u.a",
    "fr": "etc bd hab", "nl": "enz", "ru": "тыс млн млрд руб коп мин сек чел экз", "pl": "tys mln mld zł min godz",
    "es": "etc", "sv": "etc osv m.m", "da": "osv m.m", "no": "osv m.m",
}  # fmt: skip
"""Before a word that does not begin a sentence, such as a name."""
_STARTERS = {
    "en": "the a an it he she we they i you this that these those there in on at but and for however when while if as after "
    "before his her their its my our your then so no yes what why how who where which by from with to some many most all one "
    "although since during not only such other both each even also another nor or until under once",
    "de": "der die das den dem des ein eine einer einem einen er sie es wir ich ihr du man im in am an auf aus bei mit nach "
    "und aber doch wenn als da dann dies diese dieser dieses so für zu zum zur von vom durch während nur auch hier danach sein "
    "seine ihre jedoch wie was wer wo nicht kein keine um unter über seit ob alle "
    "einige dabei damit dazu daher denn oder sonst",
    "fr": "le la les l un une des du il elle ils elles on nous vous je j tu ce cet cette ces c en dans au aux à mais et pour "
    "par sur avec après son sa ses leur leurs si selon d de lors quand comme puis cependant ainsi sans depuis sous qui que où "
    "ici",
    "es": "el la los las un una unos unas lo en de del al a y pero por para con sin sobre se su sus es fue si no como cuando "
    "este esta estos estas ese esa aquel él ella ellos ellas yo nosotros desde según entre tras",
    "it": "il lo la i gli le l un una uno in nel nella di del della e ma per con si se non come quando questo questa questi "
    "queste egli lui lei noi essi loro da dal dalla al alla su dopo",
    "pt": "o a os as um uma em no na nos nas de do da e mas por para com se não como quando este esta esse essa ele ela eles "
    "elas eu nós depois segundo entre sobre",
    "nl": "de het een in op aan en maar voor met van te bij na er hij zij ze wij we ik dit dat deze die als toen ook niet om "
    "door",
    "ru": "в на и но а он она оно они мы вы я это этот эта эти по с из за для от до при как когда если что не так после его её "
    "их у к о об под над тогда там здесь однако также кроме во со",
    "uk": "в у на і й та але а він вона воно вони ми ви я це цей ця ці по з із за для від до при як коли якщо що не так після",
    "pl": "w na i ale a on ona ono oni my ja to ten ta te po z za dla od do przy jak kiedy jeśli nie tak jego jej ich",
    "cs": "v na a ale on ona ono oni my já to ten ta po z za pro od do při jak když jestli ne tak jeho její jejich",
    "sv": "den det de en ett i på och men för med av till vid efter han hon vi jag detta denna dessa som när om inte så",
    "da": "den det de en et i på og men for med af til ved efter han hun vi jeg dette denne disse som når om ikke så",
    "no": "den det de en et ei i på og men for med av til ved etter han hun vi jeg dette denne disse som når om ikke så",
}  # fmt: skip
"""Common words that begin a sentence, though an abbreviation stands before them."""
_ORDINALS = frozenset(
    (
        "de",
        "nds",
        "da",
        "no",
        "nb",
        "nn",
        "fi",
        "et",
        "lv",
        "cs",
        "sk",
        "sl",
        "hr",
        "sr",
        "bs",
        "hu",
        "is",
        "fo",
        "lb",
        "pl",
        "tr",
    )
)
"""The languages in which a full stop after a figure makes it an ordinal number."""
_ALIASES = {
    "ger": "de", "deu": "de", "eng": "en", "fre": "fr", "fra": "fr", "spa": "es", "ita": "it", "por": "pt", "dut": "nl",
    "nld": "nl", "rus": "ru", "ukr": "uk", "pol": "pl", "cze": "cs", "ces": "cs", "swe": "sv", "dan": "da", "nor": "no",
    "nob": "no", "nno": "no", "nb": "no", "nn": "no", "fin": "fi", "hun": "hu", "tur": "tr", "ell": "el", "gre": "el",
    "hin": "hi", "ben": "bn", "ara": "ar", "fas": "fa", "per": "fa", "simple": "en", "bs": "hr", "sh": "sr", "be": "ru",
    "gsw": "de", "als": "de", "bar": "de", "lb": "de", "gl": "pt", "ast": "es", "af": "nl", "fy": "nl", "ms": "id",
}  # fmt: skip
"""Codes with three letters, and related languages -> the code of a table."""


_ROMAN = frozenset(
    f"{tens}{ones}" for tens in ("", "X", "XX") for ones in ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
)


@dataclass(frozen=True, eq=False)
class Abbreviations:
    """The tables of a language; those for all languages are included."""

    titles: frozenset[str]  # with and without capitals
    numbered: frozenset[str]
    others: frozenset[str]
    starters: frozenset[str]
    words: frozenset[str]  # all but the starters, with and without capitals, and Roman numerals
    has_ordinals: bool


@cache
def abbreviations_of(language: str) -> Abbreviations:
    """Return the abbreviations of a language, those for all languages among them.

    >>> "hrn" in abbreviations_of("de-at").titles, "hrn" in abbreviations_of("en").titles
    (True, False)
    """
    code = language.partition("-")[0]
    code = _ALIASES.get(code, code)
    titles, numbered, others = (
        frozenset(f"{table['']} {table.get(code, '')}".split()) for table in (_TITLES, _NUMBERED, _OTHERS)
    )
    titles |= {word.capitalize() for word in titles}
    words = titles | numbered | others
    words |= {word.capitalize() for word in words} | {word.upper() for word in words} | _ROMAN
    starters = frozenset(_STARTERS.get(code, _STARTERS["en"]).split())
    return Abbreviations(titles, numbered, others, starters, words, code in _ORDINALS)
