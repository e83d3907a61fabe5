"""Short pages in seven languages, written for these tests in the manner of each wiki, and the prose of each.

The benchmark `wikitext` compares what several tools make of them; no text of Wikipedia is here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    language: str
    wikitext: str
    prose: str  # a blank line between paragraphs


PAGES = (
    Page(
        "de",
        """{{Infobox Berg
| NAME = Blauberg
| HÖHE = 1234
}}
Der '''Blauberg''' ({{enS|Blue Mountain}}) ist ein {{Höhe|1234|DE-NHN}} hoher Berg im [[Harz (Gebirge)|Harz]].<ref>{{Literatur
|Autor=A. Meier |Titel=Berge}}</ref> Er liegt
nahe
der Stadt.

== Geschichte ==
[[Datei:Blauberg.jpg|mini|Der Berg im {{nowrap|Jahr 1900}}.]]
Sie sagte kurz vor ihrem Tod: „Ich bin es.“

Dort fand man das {{"|Lied der Berge}}, das {{lang|en|''mountain song''}} heißt.
* Erstens
* Der zweite Weg führt über den Grat.

== Literatur ==
* A. Meier: ''Berge.'' Berlin 1990, ISBN 3-16-148410-0.

== Einzelnachweise ==
<references />

{{Normdaten|TYP=g}}
[[Kategorie:Berg]]""",
        """Der Blauberg (Blue Mountain) ist ein 1234 m hoher Berg im Harz. Er liegt nahe der Stadt.

Sie sagte kurz vor ihrem Tod: „Ich bin es.“

Dort fand man das „Lied der Berge“, das mountain song heißt.

Der zweite Weg führt über den Grat.""",
    ),
    Page(
        "de",
        """__KEIN_INHALTSVERZEICHNIS__Ein '''Teil''' ist 5 mm lang.{{Belege fehlen}}
{| class="wikitable"
! Jahr !! Zahl
|-
| 1990 || 5
|}
Die Formel lautet <math>E = m c^2</math>, wobei <math>c</math> die Geschwindigkeit ist.<br />
Sie gilt „immer“ (auch heute).

{{Zitat|Das ist wahr.|Anna}}""",
        """Ein Teil ist 5 mm lang.

Die Formel lautet E = m c², wobei c die Geschwindigkeit ist.
Sie gilt „immer“ (auch heute).

Das ist wahr.""",
    ),
    Page(
        "fr",
        """{{Voir homonymes|Montbleu}}
{{Infobox Commune|nom=Montbleu}}
'''Montbleu''' est une [[commune]] de {{unité|5000|habitants}} fondée au {{s|XIX|e}}.
Elle couvre {{unité|12,5|km|2}} et son {{1er}} maire fut {{nobr|M. Roy}}.{{Référence nécessaire||date=mai}}

== Histoire ==
Elle disait : « C'est moi. »

L'''Histoire de Montbleu'' parut le {{date|14|juillet|1789}} ({{lang|la|''Historia''}}). C'est {{citation|un livre}}, dit-on.

Au {{-s-|V|e}} siècle {{av JC}}, la ville existait.

== Voir aussi ==
=== Bibliographie ===
* Jean Dupont, ''Montbleu'', Paris, 1990.
=== Liens externes ===
* [http://www.montbleu.fr Site officiel]

{{Portail|France}}
[[Catégorie:Commune]]""",
        """Montbleu est une commune de 5000 habitants fondée au XIXe siècle. Elle couvre 12,5 km² et son 1er maire fut M. Roy.

Elle disait : « C'est moi. »

L'Histoire de Montbleu parut le 14 juillet 1789 (Historia). C'est « un livre », dit-on.

Au Ve siècle av. J.-C., la ville existait.""",
    ),
    Page(
        "es",
        """{{Ficha de localidad
|nombre = Montazul
|población = 300
}}
'''Montazul''' ({{lang-en|Blue Mount}}) es un pueblo del {{fecha|12|2|1809}}. Tiene {{unidad|12|km²}}, del {{siglo|XIX}}.

¿Quién vivía allí?

La escritora dijo:
{{cita|Todo pasa.}}

== Enlaces externos ==
* [http://www.montazul.es Página].""",
        """Montazul (Blue Mount) es un pueblo del 12 de febrero de 1809. Tiene 12 km², del siglo XIX.

¿Quién vivía allí?

La escritora dijo:

Todo pasa.""",
    ),
    Page(
        "ru",
        """{{Карточка реки
|Название = Синяя
}}
'''Си́няя''' ({{lang-en|Blue River}}) — река длиной {{s|120 км}}{{нет АИ}}. Впадает в {{нп5|Белое озеро|Белое|en|White}}.

Родился поэт {{дата рождения|12|2|1809}} в селе. В {{число|1900}} году там жило 500 человек{{sfn|Иванов|1990|с=5}}.

«Кто там?» — спросил он.

== Примечания ==
{{примечания}}
[[Категория:Реки]]""",
        """Си́няя (Blue River) — река длиной 120 км. Впадает в Белое.

Родился поэт 12 февраля 1809 в селе. В 1900 году там жило 500 человек.

«Кто там?» — спросил он.""",
    ),
    Page(
        "ja",
        """{{基礎情報 町
|名称 = 青町
}}
'''{{読み仮名|青町|あおまち}}'''は、[[日本]]の町である。{{要出典範囲|人口は五千人で|date=2010年}}、
{{仮リンク|白湖|en|White Lake}}に面している<ref>「本」一頁。</ref>。

「これは町だ。」

* 一つ目
* 二つ目の寺は山の上にある。

== 脚注 ==
{{Reflist}}
== 関連項目 ==
* [[日本]]。""",
        """青町（あおまち）は、日本の町である。人口は五千人で、白湖に面している。

「これは町だ。」

二つ目の寺は山の上にある。""",
    ),
    Page(
        "zh",
        """__无目录__{{NoteTA|G1=IT}}
{{Infobox|name=甲}}
'''甲'''（{{lang|en|Alpha}}，{{bd|1950年|1月2日|2000年|3月4日}}）是-{zh-cn:信息;zh-tw:資訊}-学家，著有《{{le|乙书|Book B}}》。
-{H|zh-cn:程序;zh-tw:程式}-

他写的-{程序}-很好{{fact}}。

“他来了。”

== 參考文獻 ==
* 某书，1990年。
[[Category:人物]]""",
        """甲（Alpha，（1950年1月2日－2000年3月4日））是信息学家，著有《乙书》。

他写的程序很好。

“他来了。”""",
    ),
    Page(
        "th",
        """{{กล่องข้อมูล เมือง
| ชื่อ = เมืองฟ้า
}}
'''เมืองฟ้า''' ({{lang-en|Sky City}}) เป็นเมืองในประเทศไทย<ref>หนังสือ</ref> มีประชากร
ห้าพันคน

เมืองนี้อยู่ใกล้ทะเล

== อ้างอิง ==
{{รายการอ้างอิง}}
[[หมวดหมู่:เมือง]]""",
        """เมืองฟ้า (Sky City) เป็นเมืองในประเทศไทย มีประชากรห้าพันคน

เมืองนี้อยู่ใกล้ทะเล""",
    ),
)
