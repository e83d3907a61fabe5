"""Pages and sections of wikis that are lists, not prose, known by names in many languages.

Disambiguation pages and lists of names are known by their templates, by the bracket that ends their title, or by their first
words. The sections after an article, such as References, are known by their headings.

Sources of the names: the tables of the MIT-licensed parser wtf_wikipedia, and for titles those of DBpedia's extraction
framework. Names "without a source" are from memory.
"""

import re

_DISAMBIGUATIONS = frozenset(
    """dab|disamb|disambig|disambiguation|dmbox|disambiguation cleanup|disambiguation page|human name disambiguation|
    human name disambiguation cleanup|letter-numbercombdisambig|letter-number combination disambiguation|
    airport disambiguation|biology disambiguation|call sign disambiguation|caselaw disambiguation|
    chinese title disambiguation|genus disambiguation|hospital disambiguation|mathematical disambiguation|
    military unit disambiguation|music disambiguation|number disambiguation|opus number disambiguation|
    phonetics disambiguation|place name disambiguation|road disambiguation|school disambiguation|
    species latin name abbreviation disambiguation|species latin name disambiguation|station disambiguation|
    synagogue disambiguation|taxonomic authority disambiguation|taxonomy disambiguation|aðgreining|aimai|anlam ayrımı|
    apartigilo|argipen|begriffsklärung|bkl|čvor|desambig|desambigación|desambiguação|desambiguació|desambiguación|
    dezambiguizare|dəqiqləşdirmə|disambigua|disambiguasi|discretiva|dixebra|doorverwijspagina|dp|dubbelsinnig|egyért|
    fleirtyding|flertydig|förgrening|gì-ngiê|giklaro|gwahaniaethu|homónimos|homonymie|idirdhealú|kthjellim|maana|
    mehrdüdig begreep|nozīmju atdalīšana|nuorodinis|nyahkekaburan|omonimia|paglilinaw|pansayod|peker|razdvojba|razločitev|
    razvrstavanje|rozcestník|rozlišovacia stránka|täpsustuslehekülg|täsmennyssivu|trang định hướng|ujednoznacznienie|
    verdudeliking|αποσαφήνιση|айрық|вишезначна одредница|неадназначнасць|неадназначнасьць|неоднозначность|олон удхатай|
    појаснување|пояснение|чолхалла|მრავალმნიშვნელოვანი|բազմիմաստություն|פירושונים|ابهام‌زدایی|توضيح|ضد ابہام|
    बहुविकल्पी शब्द|দ্ব্যর্থতা নিরসন|பக்கவழி நெறிப்படுத்தல்|అయోమయ నివృత్తి|വിവക്ഷകൾ|แก้ความกำกวม|သံတူကြောင်းကွဲ|ណែនាំ|
    동음이의|搞清楚|曖昧さ回避|消歧义|釋義|hndis|geodis|schooldis|numberdis|roaddis|mil-unit-dis|mathdab|dab cleanup|
    airport disambig|geo-dis|paronymie|toponymie|sigles|desambiguacion|многозначность|消歧義|消歧義頁|消歧义页|地名消歧义|
    地名消歧義|人名消歧义|人名消歧義|багатозначність|صفحة توضيح|แก้กำกวม|định hướng|동음이의어|rozlišení|olika betydelser|
    dpintro""".replace("\n    ", "").split("|")
)  # fmt: skip
"""Templates of disambiguation pages, in lower case; from hndis on without a source."""
_ENDS = ("の曖昧さ回避", "-disambig", "消歧义", "消歧義")
"""Ends of the names of such templates for one kind of thing, such as 人名の曖昧さ回避; no source."""
_LISTS_OF_NAMES = frozenset(
    """surname|given name|given-name|nickname|set index article|set index|sia|shipindex|ship index|mountainindex|
    mountain index|roadindex|road index|sportindex|sport index|lakeindex|plant common name|animal common name|
    chemistry index|storm index|locomotive index|fungus common name|personal name list|список однофамильцев|однофамильцы|
    список тёзок|patronyme|homonymie de personnes|sobrenome""".replace("\n    ", "").split("|")
)  # fmt: skip
"""Templates of lists of names and of things with one name, in lower case; no source."""
_NAME = re.compile(r"\{\{\s*([^{}|\n\[\]<>]{2,60})")
_SWITCH = re.compile(r"__(?:DISAMBIG|BEGRIFFSKLÄRUNG|DESAMBIGUACIÓN|消歧义|消歧義|曖昧さ回避|НЕОДНОЗНАЧНОСТЬ)__")
_BRACKET = re.compile(r"[(（]([^()（）]+)[)）]\s*$")
_TITLES = frozenset(
    """disambiguation|توضيح|desambiguació|rozcestník|begriffsklärung|αποσαφήνιση|apartigilo|desambiguación|argipena|
    desambiguáncia|homonymie|homónimos|פירושונים|egyértelműsítő lap|disambig|disambigua|동음이의|doorverwijspagina|
    ujednoznacznienie|desambiguação|значения|višeznačna odrednica|вишезначна одредница|曖昧さ回避|消歧義|搞清楚|ابهام‌زدایی|
    ضد ابہام|dubbelsinnig|այլ կիրառումներ|olika betydelser|peker|disambigueren|消歧义|消歧義頁|значення|flertydig|
    förgrening|täsmennyssivu|anlam ayrımı|định hướng|แก้ความกำกวม|disambiguasi|dezambiguizare""".replace("\n    ", "").split("|")
)  # fmt: skip
"""Brackets that end the titles of disambiguation pages, in lower case; from 消歧义 on without a source."""
_NAME_TITLES = frozenset({
    "surname", "given name", "name", "nom", "prénom", "patronyme", "familienname", "vorname", "фамилия", "apellido",
    "cognome", "sobrenome", "nazwisko", "名前", "人名", "姓",
})  # fmt: skip
"""Brackets that end the titles of lists of people with one name; no source."""
_OPENING = re.compile(
    r"\b(?:may|can|could|might)(?: also| either)? refer to\b|\b(?:most )?(?:commonly|often|usually) refers to:|"
    r"\b(?:steht|stehen) für:|\bbezeichnet:|\bist der (?:Familien|Vor|Nach)?name (?:folgender|mehrerer)|"
    r"\bpeu(?:t|vent) (?:désigner|faire référence|se référer|renvoyer)|\bpuede(?:n)? (?:referirse|hacer referencia|designar)|"
    r"\bpuò (?:riferirsi|indicare)|\bpode(?:m)? (?:referir-se|se referir|significar)|\bkan (?:verwijzen naar|staan voor|"
    r"betrekking hebben op)|\bmoże (?:oznaczać|odnosić się)|\bможет (?:означать|относиться)|\bможе означати|"
    r"(?:可以指|可能指|可以是指|可能是指|可指)|以下の(?:意味|人物|項目|用法)|다음(?:을|과 같은)",
    re.IGNORECASE,
)  # fmt: skip
"""First words of disambiguation pages; no source. They count only in a short paragraph, as in "X may refer to:"."""
_MAX_OPENING = 120

FILES = frozenset(
    """archivo|attēls|berkas|bestand|datei|dosiero|fájl|fasciculus|fichier|fil|fitxategi|fitxer|gambar|imagem|imej|immagine|
    larawan|lêer|plik|restr|slika|выява|податотека|слика|файл|სურათი|պատկեր|קובץ|پرونده|ملف|चित्र|ไฟล์|파일|ファイル|imagen|
    bild|изображение|зображення|ficheiro|grafika|afbeelding|画像|图像|圖像|文件|檔案|档案|kép|soubor|obrázek|bilde|billede|
    kuva|tiedosto|그림|εικόνα|αρχείο|hình|tập tin|tệp|dosya|resim|fișier|imagine|
    ภาพ|صورة|تصویر""".replace("\n    ", "").split("|")
)  # fmt: skip
"""Names of the namespace of files on many wikis, in lower case; the head of a dump lacks those that are only allowed, such as
the Spanish "Imagen". From imagen on without a source.
"""

APPENDICES = frozenset(
    """references|external links|see also|further reading|notes|bibliography|footnotes|citations|sources|works cited|
    notes and references|references and notes|general references|explanatory notes|gallery|filmography|discography|
    notes and citations|references and sources|sources and references|selected bibliography|selected works|literature|
    references and further reading|further reading and references|cited works|cited sources|primary sources|
    secondary sources|external resources|external sources|other sources|book sources|books cited|notes and sources|endnotes|
    general sources|sources cited|works consulted|literature cited|additional reading|suggested reading|recommended reading|
    select bibliography|annotated bibliography|reading list|publications|select filmography|partial discography|
    image gallery|einzelnachweise|weblinks|siehe auch|literatur|anmerkungen|quellen|belege|fußnoten|literatur und quellen|
    weiterführende literatur|literaturverzeichnis|quellen und literatur|werke (auswahl)|schriften (auswahl)|
    veröffentlichungen (auswahl)|galerie|diskografie|filmografie|bibliografie|einzelnachweise und anmerkungen|
    anmerkungen und einzelnachweise|schriften|diskographie|filmographie|notes et références|références|liens externes|
    voir aussi|articles connexes|bibliographie|annexes|lien externe|notes, sources et références|sources et bibliographie|
    discographie|ouvrages|pour en savoir plus|bibliographie sélective|article connexe|liens internes|referencias|
    enlaces externos|véase también|bibliografía|notas|notas y referencias|referencias y notas|lectura adicional|fuentes|
    bibliografía adicional|otras lecturas|galería|discografía|filmografía|obras citadas|referencias bibliográficas|note|
    collegamenti esterni|voci correlate|bibliografia|altri progetti|note bibliografiche|filmografia|discografia|
    galleria d'immagini|fonti|annotazioni|riferimenti|referências|ligações externas|ver também|notas e referências|
    referências bibliográficas|leitura adicional|galeria|ligações externas e referências|bronnen, noten en/of referenties|
    externe links|zie ook|literatuur|bronnen|noten|referenties|externe link|voetnoten|verder lezen|discografie|примечания|
    ссылки|см. также|литература|источники|сноски|примечания и ссылки|библиография|дискография|фильмография|комментарии|
    галерея|смотри также|внешние ссылки|источники и литература|труды|сочинения|основные труды|przypisy|linki zewnętrzne|
    zobacz też|uwagi|źródła|literatura|literatura dodatkowa|dyskografia|примітки|посилання|джерела|література|див. також|
    виноски|参考文献|参考资料|參考資料|參考文獻|外部链接|外部連結|外部鏈接|外部リンク|参见|參見|参看|參看|注释|註釋|注釋|
    脚注|腳註|出典|関連項目|関連文献|注釈|脚註|関連書籍|ギャラリー|参考書籍|著作|延伸阅读|延伸閱讀|扩展阅读|擴展閱讀|
    相关条目|相關條目|备注|備註|来源|來源|資料來源|资料来源|引用|注解|註解|注|註|参照|图集|圖集|图库|圖庫|관련 항목|
    같이 보기|각주|참고 문헌|외부 링크|참고 자료|출처|مراجع|المراجع|وصلات خارجية|انظر أيضا|انظر أيضًا|المصادر|مصادر|هوامش|
    सन्दर्भ|संदर्भ|बाहरी कड़ियाँ|इन्हें भी देखें|यह भी देखें|टिप्पणी|อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม|เชิงอรรถ|
    หนังสืออ่านเพิ่มเติม|källor|externa länkar|se även|referenser|noter|litteratur|kilder|eksterne lenker|se også|
    eksterne henvisninger|referanser|lähteet|aiheesta muualla|katso myös|viitteet|kirjallisuutta|jegyzetek|források|
    további információk|odkazy|reference|externí odkazy|související články|kaynakça|dış bağlantılar|ayrıca bakınız|
    tham khảo|liên kết ngoài|xem thêm|chú thích|referensi|pranala luar|lihat pula|catatan kaki|lihat juga|הערות שוליים|
    קישורים חיצוניים|ראו גם|לקריאה נוספת|منابع|پانویس|پیوند به بیرون|جستارهای وابسته|παραπομπές|εξωτερικοί σύνδεσμοι|
    δείτε επίσης|πηγές|βιβλιογραφία|note și referințe|legături externe|vezi și""".replace("\n    ", "").split("|")
)  # fmt: skip
"""Headings, in lower case, of sections after the article. Their list items may end with a dot, but are not sentences."""
_NOTES = "notes?|footnotes|citations|references|sources"
_APPENDIX = re.compile(
    r"(?:selected |partial |annotated |further |general |cited |complete |select )*"
    r"(?:bibliograph|references|discograph|filmograph)[a-z]*(?: \(.*\))?|"
    rf"(?:{_NOTES})(?:,? (?:and|&|et|und) (?:{_NOTES}|bibliography|further reading|external links))+"
)


def is_appendix(heading: str) -> bool:
    """Return whether a section with this heading holds references, links or works, not prose.

    >>> [is_appendix(heading) for heading in ("'''References'''", "Notes & references:", "Literatur", "Life")]
    [True, True, True, False]
    """
    name = " ".join(heading.strip(" \t':：").lower().split())
    return name in APPENDICES or bool(_APPENDIX.fullmatch(name))


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Return whether a page lists the things that a word may mean, by its title, a template or the switch __DISAMBIG__.

    >>> is_disambiguation("Merkur (Begriffsklärung)", ""), is_disambiguation("Ada", "{{disambig}}")
    (True, True)
    """
    if _ends_in(title, _TITLES) or _SWITCH.search(wikitext):
        return True
    return any(name in _DISAMBIGUATIONS or name.endswith(_ENDS) for name in _templates_in(wikitext))


def is_list_of_names(title: str, wikitext: str) -> bool:
    """Return whether a page is a set index or a list of people with a name.

    >>> is_list_of_names("Adams", "{{surname}}"), is_list_of_names("Adams (surname)", "")
    (True, True)
    """
    return _ends_in(title, _NAME_TITLES) or not _LISTS_OF_NAMES.isdisjoint(_templates_in(wikitext))


def _templates_in(wikitext: str) -> set[str]:
    return {name.replace("_", " ").strip().lower() for name in _NAME.findall(wikitext)}


def opens_disambiguation(paragraph: str) -> bool:
    """Return whether the first paragraph of a page is like "Mercury may refer to:", which only disambiguation pages have."""
    ends = paragraph.rstrip().endswith((":", "：", "…", "...")) or len(paragraph) <= _MAX_OPENING // 2
    return ends and len(paragraph) <= _MAX_OPENING and bool(_OPENING.search(paragraph))


def _ends_in(title: str, brackets: frozenset[str]) -> bool:
    bracket = _BRACKET.search(title)
    return bracket is not None and bracket[1].strip().lower() in brackets
