"""Print some questions, predicted answers and right ones.

python -m examples.end_to_end.show_answers DEV.json PREDICTIONS.json [N]
"""

import json
import sys
from pathlib import Path


def main() -> None:
    dev, predictions = (json.loads(Path(path).read_bytes()) for path in sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    paragraphs = [paragraph for article in dev["data"] for paragraph in article["paragraphs"]]
    for paragraph in paragraphs[:: max(1, len(paragraphs) // count)][:count]:  # spread over the articles
        asked = paragraph["qas"][0]
        print(f"\n  context   {paragraph['context']}")
        print(f"  question  {asked['question']}")
        print(f"  answer    {predictions[asked['id']]}   (right: {asked['answers'][0]['text']})")


if __name__ == "__main__":
    main()
